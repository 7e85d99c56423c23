//! Kernels of the server, used over REST and WebSockets as clients of a gateway do.

use super::{tenants::Tenants, *};
use crate::{
    guests::jupyter::{client, pictures},
    support::node,
};

#[test]
fn clients_of_a_gateway_run_cells_and_see_no_kernel_of_another_tenant() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = client("gateway.py", folder.path());
    let ended = run(command.args([&format!("http://{}/jupyter", served.address), &red, &blue]));
    assert!(ended.code == 0 && ended.stdout.ends_with("ok\n"), "{}{}", ended.stdout, ended.stderr);
}

/// Pictures of what was seen are in `target/pictures`.
#[test]
fn a_notebook_is_used_in_jupyterlab_whose_kernels_are_here() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let mut command = client("lab.py", store.path());
    command.arg(node()).arg("cellar-python-data").arg(pictures("gateway"));
    let gateway = format!("--gateway-url=http://{}/jupyter", served.address);
    let ended = run(command.args([gateway, format!("--GatewayClient.auth_token={}", served.token)]));
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}
