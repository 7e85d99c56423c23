//! Kernels of the server, used over REST and WebSockets as clients of a gateway do.

use super::{tenants::Tenants, *};

#[test]
fn clients_of_a_gateway_run_cells_and_see_no_kernel_of_another_tenant() {
    let python = root().join("target/jupyter/bin/python");
    assert!(python.exists(), "no clients of Jupyter at `{}`; run `make packages` first", python.display());
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let mut command = Command::new(python);
    command.arg(root().join("fixtures/jupyter/gateway.py"));
    let output = command.args([&format!("http://{}/jupyter", served.address), &red, &blue]).output();
    let output = output.expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("ok\n"), "{said}");
}
