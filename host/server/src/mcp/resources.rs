//! Resources that results of tools name without showing them whole: outputs of cells, and those of their sub-agents.

use std::io::Read;

use cellar_engine::artifacts::{AGENT_SCHEME, ARTIFACT_SCHEME, Artifact, ArtifactError, ArtifactStore};
use rmcp::{
    ErrorData,
    model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde_json::json;
use url::form_urlencoded;

use super::{READ_BYTES_MAX, answers};
use crate::{
    problem::Problem,
    tenant::{Tenant, on_a_thread},
};

/// Resources in a list; of more, the first.
const LISTED_MAX: usize = 200;

/// Returns the URI templates of the resources.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("artifact://{id}", "artifact")
            .with_description("An output that a result does not show whole, by the id that it has there"),
        ResourceTemplate::new("agent://{session}/{name}", "output of an agent")
            .with_description("What a sub-agent of a session's cells came to, by the name that its status has"),
    ]
}

/// Lists the resources.
pub(super) async fn list(tenant: &Tenant) -> Result<Vec<Resource>, ErrorData> {
    let store = tenant.artifacts.clone();
    let list = on_a_thread(move || store.list()).await.map_err(internal)?;
    let list = list.map_err(|error| internal(error.into()))?;
    Ok(list.iter().flat_map(named).take(LISTED_MAX).collect())
}

/// Returns the resources of an artifact, one for each of its names.
fn named(artifact: &Artifact) -> Vec<Resource> {
    let of_agents = artifact.sessions.iter().flat_map(|session| {
        let uri = |label: &String| (agent_uri(session, label), label.clone());
        artifact.labels.iter().map(uri)
    });
    let mut names: Vec<(String, String)> = of_agents.collect();
    if names.is_empty() {
        let name = artifact.title.clone().unwrap_or_else(|| artifact.id.clone());
        names.push((artifact.uri(), name));
    }
    let resource = |(uri, name): (String, String)| {
        let mut resource = Resource::new(uri, name);
        resource.title = artifact.title.clone();
        resource.mime_type = Some(artifact.mime_type.clone());
        resource.size = Some(artifact.size_bytes);
        resource
    };
    names.into_iter().map(resource).collect()
}

/// `agent://SESSION/NAME`, where bytes of the name that have a meaning in a URI are `%XX`.
fn agent_uri(session: &str, name: &str) -> String {
    let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A space is `+` in forms alone.
    format!("{AGENT_SCHEME}{session}/{}", name.replace('+', "%20"))
}

/// Reads a resource, up to the size that clients accept.
pub(super) async fn read(tenant: &Tenant, uri: String) -> Result<ReadResourceResult, ErrorData> {
    let store = tenant.artifacts.clone();
    let unknown = ErrorData::resource_not_found(format!("there is no `{uri}`"), Some(json!({ "uri": uri })));
    let asked = uri.clone();
    let read = on_a_thread(move || {
        let artifact = find(&store, &asked).ok_or(None)?;
        let file = store.read(&artifact.id).map_err(|_| None)?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(Some)?;
        Ok::<_, Option<std::io::Error>>((artifact.mime_type, bytes))
    });
    let (mime_type, bytes) = read.await.map_err(internal)?.map_err(|error| match error {
        None => unknown,
        Some(error) => internal(Problem::internal(&error, "store")),
    })?;
    let contents = match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(answers::base64(error.as_bytes()), uri),
    };
    Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime_type)]))
}

/// Finds the artifact that a URI names. Blocks.
fn find(store: &ArtifactStore, uri: &str) -> Option<Artifact> {
    let found: Result<Artifact, ArtifactError> = match uri.strip_prefix(ARTIFACT_SCHEME) {
        Some(id) => store.get(id),
        None => {
            let (session, name) = uri.strip_prefix(AGENT_SCHEME)?.split_once('/')?;
            let name = crate::http::decoded(name).ok()?;
            store.agent(session, &name)
        }
    };
    found.ok()
}

pub(super) fn internal(problem: Problem) -> ErrorData {
    ErrorData::internal_error(problem.words(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_agents_are_found_by_the_uri_that_lists_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ArtifactStore::open(folder.path(), Default::default()).expect("a store");
        let kept =
            store.put("s", b"done", cellar_engine::artifacts::Description { mime_type: "text/plain", title: None });
        let mut artifact = kept.expect("kept");
        artifact.labels = vec!["re/view of é + b".to_owned()];
        let uri = named(&artifact)[0].uri.clone();
        assert_eq!(uri, "agent://s/re%2Fview%20of%20%C3%A9%20%2B%20b");
        let (_, name) = uri.strip_prefix("agent://").expect("its scheme").split_once('/').expect("a name");
        assert_eq!(crate::http::decoded(name).expect("text"), artifact.labels[0]);
        artifact.labels.clear();
        assert_eq!(named(&artifact)[0].uri, artifact.uri());
    }
}
