//! The tables of the reference page, `docs/reference/traffic-models.md`.

use std::fmt::Write as _;

use super::{Definition, MODELS};

/// Returns the tables of all models as Markdown.
pub fn tables() -> String {
    MODELS.iter().map(|model| table(model)).collect::<Vec<_>>().join("\n")
}

fn table(model: &Definition) -> String {
    let mut text = format!("## `{}`\n\n{}\n\n", model.name, model.summary);
    text += "| parameter | meaning | default | source |\n| --- | --- | --- | --- |\n";
    if let Some(choice) = model.choice {
        let names: Vec<String> = choice.variants.iter().map(|v| format!("`{}`", v.name)).collect();
        let _ = writeln!(text, "| `{}` | {} | {} | – |", choice.name, names.join(" or "), names[0]);
    }
    for parameter in model.parameters {
        let (value, source) = model.default(parameter, None);
        let value = value.describe(|value| parameter.unit.format(value));
        let _ = writeln!(text, "| `{}` | {} | `{value}` | {source} |", parameter.name, parameter.meaning);
    }
    let Some(choice) = model.choice else { return text };
    for variant in choice.variants {
        let _ = writeln!(
            text,
            "\n`{} = {}`: {}. Source: {}.\n",
            choice.name, variant.name, variant.meaning, variant.source
        );
        text += "| parameter | value |\n| --- | --- |\n";
        for (name, value) in variant.values {
            let parameter = model.parameter(name).expect("a variant sets parameters of its model");
            let _ =
                writeln!(text, "| `{name}` | `{}` |", value().describe(|value| parameter.unit.format(value)));
        }
    }
    text
}
