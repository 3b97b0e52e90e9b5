//! The part `controllers`: the validation cases of ns-3.

use serde_json::json;
use trunkline_reproduction::tcp_validation::{CASES, TEXT};
use trunkline_run::StopFlag;

use super::{Check, Part, finished, plan, pool, simulate};
use crate::failure::Failure;

/// CUBIC and DCTCP against ns-3's figures.
pub fn controllers(threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let compared = pool::run_all("controllers", CASES.len(), threads, stop, |at| {
        let case = &CASES[at];
        Some(simulate(&plan(TEXT, case.changes), stop).map(|record| case.compare(&record)))
    });
    let mut text = String::from(
        "controllers: validation cases of ns-3 (tcp-validation), windows in segments\n\
         case                                  figure                                ns-3          ours   deviation\n",
    );
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for (case, compared) in CASES.iter().zip(compared) {
        for row in finished(compared, stop)? {
            text += &format!(
                "{:<36}  {:<36}  {:<12}  {:>5.1}  {:>+7.1} %{}\n",
                case.name,
                row.name,
                row.theirs,
                row.ours,
                row.deviation * 100.0,
                if case.is_promised { "" } else { "  not promised" },
            );
            rows.push(json!({ "case": case.name, "figure": row.name, "ns3": row.theirs, "ours": row.ours,
                "deviation": row.deviation, "promised": case.is_promised }));
            if case.is_promised {
                let text = format!("{}: {}, ns-3 has {}", case.name, row.name, row.theirs);
                checks.push(Check { text, passed: row.is_within });
            }
        }
    }
    Ok(Part { text: text + "\n", json: rows.into(), checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controllers_have_the_figures_of_ns3() {
        let part = controllers(2, &StopFlag::default()).expect("the runs succeed");
        assert!(part.checks.len() == 10 && part.checks.iter().all(|check| check.passed), "{}", part.text);
        // One case of CUBIC is not promised.
        assert_eq!(part.json.as_array().map(Vec::len), Some(14));
    }
}
