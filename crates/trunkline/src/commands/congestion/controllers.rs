//! The part `controllers`: the validation cases of ns-3.

use serde_json::json;
use trunkline_reproduction::tcp_validation::{CASES, Case, TEXT};
use trunkline_run::StopFlag;

use super::{Check, Part, finished, pool, simulate};
use crate::failure::Failure;

/// CUBIC and DCTCP against ns-3's figures.
pub fn controllers(threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    compare(CASES, threads, stop)
}

fn compare(cases: &[Case], threads: usize, stop: &StopFlag) -> Result<Part, Failure> {
    let compared = pool::run_all("controllers", cases.len(), threads, stop, |at| {
        let case = &cases[at];
        Some(simulate(TEXT, case.changes, stop).map(|record| case.compare(&record)))
    });
    let mut text = String::from(
        "controllers: validation cases of ns-3 (tcp-validation), windows in segments\n\
         case                                  figure                                ns-3          ours   deviation\n",
    );
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for (case, compared) in cases.iter().zip(compared) {
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
    fn a_case_is_a_row_for_each_figure() {
        let part = compare(&CASES[2..3], 1, &StopFlag::default()).expect("the run succeeds");
        assert!(part.checks.len() == 2 && part.checks.iter().all(|check| check.passed), "{}", part.text);
        assert_eq!(part.json.as_array().map(Vec::len), Some(2));
        assert!(part.text.contains("DCTCP, 10 ms"), "{}", part.text);
    }
}
