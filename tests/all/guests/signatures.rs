//! Signatures of tools as models and cells get them: by the command, by a search in a cell, in refusals.

use crate::support::{cellar, config, result_of, run, text};

/// Tools of a configuration: so many, of which one sends mail.
fn tools(count: usize) -> String {
    let other =
        |number: usize| format!("[tools.other_{number}]\ncommand = [\"cat\"]\ndescription = \"Does nothing\"\n");
    let mail = "[tools.send_mail]\ncommand = [\"cat\"]\ndescription = \"Sends a letter by mail\"\n[tools.send_mail.schema]\n\
                type = \"object\"\nrequired = [\"to\"]\nproperties = { to = { type = \"string\" }, urgent = { type = \"boolean\", default = false } }\n";
    mail.to_owned() + &(1..count).map(other).collect::<String>()
}

const PYTHON: &str = "tool.send_mail(*, to: str, urgent: bool = False) -> Any  # Sends a letter by mail";
const JAVASCRIPT: &str =
    "tool.send_mail(args: { to: string; urgent?: boolean }): Promise<any>  // Sends a letter by mail";

fn described(flags: &[&str]) -> String {
    let ended = run(&mut cellar(["describe"].iter().chain(flags)));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stdout
}

#[test]
fn the_command_prints_what_a_model_is_told() {
    let (_folder, few) = config(&tools(2));
    let few = ["--config", few.to_str().expect("text")];
    assert!(described(&few).contains("def send_mail(self, *, to: str, urgent: bool = False) -> Any:"));
    assert!(
        described(&[&few[..], &["--language", "js"]].concat())
            .contains("send_mail(args: { to: string; urgent?: boolean })")
    );
    let (_folder, many) = config(&tools(25));
    let many = ["--config", many.to_str().expect("text")];
    let told = described(&many);
    assert!(
        told.starts_with("25 functions of the host: `tool` (25). `tools.search(") && !told.contains("send_mail"),
        "{told}"
    );
    assert!(described(&[&many[..], &["--all"]].concat()).contains("def other_24("));
    assert_eq!(described(&[&many[..], &["--search", "write letters"]].concat()), format!("{PYTHON}\n"));
    assert!(described(&[&many[..], &["tool.send_mail"]].concat()).contains("def send_mail("));
    let unknown = run(&mut cellar(["describe", "send_mial"].iter().chain(&many)));
    assert!(unknown.code != 0 && unknown.stderr.contains("did you mean `send_mail`"), "{}", unknown.stderr);
}

#[test]
fn cells_search_among_many_tools_and_call_what_they_find() {
    let (_folder, path) = config(&tools(25));
    let flags = ["--config", path.to_str().expect("text")];
    let python = "print(tools.search('letter')[0])\nprint(tools.describe('send_mail'))\ntool.send_mail(to='Ada')['to']";
    let said = result_of("py", &[python], &flags);
    let said = text(&said);
    assert!(
        said.starts_with(PYTHON) && said.contains("class Tool:\n    def send_mail(") && said.ends_with("'Ada'"),
        "{said}"
    );
    let javascript = "console.log((await tools.search('letter', {limit: 1})).join())\nconsole.log(await tools.describe('send_mail'))";
    let said = result_of("js", &[javascript], &flags);
    let said = text(&said);
    assert!(said.starts_with(JAVASCRIPT) && said.contains("declare const tool: {\n"), "{said}");
}

#[test]
fn arguments_that_do_not_fit_are_refused_with_the_signature() {
    let (_folder, path) = config(&tools(1));
    let flags = ["--config", path.to_str().expect("text")];
    for (language, code, signature) in
        [("py", "tool.send_mail(to=1)", PYTHON), ("js", "await tool.send_mail({to: 1})", JAVASCRIPT)]
    {
        let result = result_of(language, &[code], &flags);
        let message = result["details"]["cells"][0]["error"]["message"].as_str().expect("a message");
        assert!(message.ends_with(&format!("expected string, found 1; it is {signature}")), "{message}");
    }
}
