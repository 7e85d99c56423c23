//! Cost of a call of the host when the host answers at once.

use cellar_engine::Language;

use crate::{
    Offer,
    lab::{Lab, Plan},
    table::Line,
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("bridge calls", calls)];

/// One way to call a tool many times in one cell.
struct Form {
    language: Language,
    name: &'static str,
    /// Code that defines what the timed cell needs.
    setup: &'static str,
    code: &'static str,
    calls: u32,
    target: Option<f64>,
}

const FORMS: &[Form] = &[
    Form {
        language: Language::Python,
        name: "blocking",
        setup: "def calls():\n    for n in range(1000):\n        tool.echo(n=n)",
        code: "calls()",
        calls: 1_000,
        target: Some(5.0),
    },
    Form {
        language: Language::Python,
        name: "awaited",
        setup: "async def calls():\n    for n in range(1000):\n        await tool.echo.aio(n=n)",
        code: "await calls()",
        calls: 1_000,
        target: Some(12.0),
    },
    Form {
        language: Language::Python,
        name: "awaited, 100 at a time",
        setup: "import asyncio",
        code: "_ = await asyncio.gather(*[tool.echo.aio(n=n) for n in range(100)])",
        calls: 100,
        target: Some(12.0),
    },
    Form {
        language: Language::JavaScript,
        name: "blocking",
        setup: "const calls = () => { for (let n = 0; n < 1000; n++) tool.echo.sync({ n }) }",
        code: "calls()",
        calls: 1_000,
        target: Some(5.0),
    },
    Form {
        language: Language::JavaScript,
        name: "awaited",
        setup: "const calls = async () => { for (let n = 0; n < 1000; n++) await tool.echo({ n }) }",
        code: "await calls()",
        calls: 1_000,
        target: Some(12.0),
    },
    Form {
        language: Language::JavaScript,
        name: "awaited, 100 at a time",
        setup: "const numbers = Array.from({ length: 100 }, (_, n) => n)",
        code: "await Promise.all(numbers.map((n) => tool.echo({ n }))); undefined",
        calls: 100,
        target: Some(12.0),
    },
];

fn calls(plan: &Plan) -> Vec<Line> {
    let measure = |form: &Form| {
        let what = format!("{}: bridge call, {}", form.language.title(), form.name);
        let lab = Lab::open(plan, form.language);
        let session = lab.session();
        lab.run(&session, form.setup);
        let samples = plan.sample(&what, || lab.time(&session, form.code)).divided(form.calls);
        Line::time(what, &samples, form.target)
    };
    FORMS.iter().map(measure).collect()
}
