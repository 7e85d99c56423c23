//! Operators' requests about all tenants, where each has a process.

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::{Worker, Workers, pass::Authorized};
use crate::{
    access::{Scope, bearer},
    http::{
        answers,
        metrics::{self, QUOTA_FAMILIES},
        names,
    },
    problem::{Answer, Problem},
};

/// Bytes of a worker's response, at most.
const ANSWER_BYTES_MAX: usize = 16 << 20;

impl Worker {
    /// Returns true if it runs.
    async fn is_running(&self) -> bool {
        self.slot.lock().await.as_ref().is_some_and(|running| !running.is_gone())
    }

    /// Sends the worker a request of this process itself.
    async fn look(&self, workers: &Workers, path: &str) -> Result<(StatusCode, Vec<u8>), Problem> {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {}", self.own.look.0));
        let request = request.body(()).map_err(|error| Problem::internal(&error, "worker"))?;
        let response = self.send(workers, request.into_parts().0, Body::empty(), Authorized::default()).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| Problem::internal(&*error, "worker"))?.to_bytes().to_vec()))
    }
}

/// Returns the metrics of the running workers, and the usage of models, which is counted here, in the format of
/// Prometheus.
async fn figures(workers: &Workers) -> String {
    let mut families: Vec<(String, Vec<String>)> = Vec::new();
    for worker in workers.all() {
        if !worker.is_running().await {
            continue;
        }
        let Ok((StatusCode::OK, text)) = worker.look(workers, "/metrics").await else { continue };
        let mut head = String::new();
        for line in String::from_utf8_lossy(&text).lines() {
            if line.starts_with('#') {
                if line.starts_with("# HELP") {
                    // The family before had no line.
                    head.clear();
                }
                head = format!("{head}{line}\n");
                continue;
            }
            let name = line.split('{').next().unwrap_or_default();
            // Requests are counted in front, and nobody speaks for another tenant.
            if name != "cellar_requests_total" && line.contains(&format!("{{tenant=\"{}\"", worker.name)) {
                let place = families.iter().position(|(_, lines)| lines[0].starts_with(&format!("{name}{{")));
                match place {
                    Some(place) => families[place].1.push(line.to_owned()),
                    None => families.push((std::mem::take(&mut head), vec![line.to_owned()])),
                }
            }
            head.clear();
        }
    }
    for (kind, help) in QUOTA_FAMILIES {
        let family = format!("cellar_quota_{kind}");
        // What models say is counted in front, whether the worker runs or not.
        let lines: Vec<String> = workers
            .all()
            .flat_map(|worker| worker.models.list().into_iter().map(move |quota| (&worker.name, quota)))
            .map(|(tenant, (quota, limit, used))| {
                let value = if kind == "limit" { limit } else { used };
                format!("{family}{{tenant=\"{tenant}\",quota=\"{quota}\"}} {value}")
            })
            .collect();
        match families.iter_mut().find(|(_, lines)| lines[0].starts_with(&format!("{family}{{"))) {
            Some((_, found)) => found.extend(lines),
            None if lines.is_empty() => {}
            None => families.push((format!("# HELP {family} {help}\n# TYPE {family} gauge\n"), lines)),
        }
    }
    families.into_iter().map(|(head, lines)| format!("{head}{}\n", lines.join("\n"))).collect()
}

impl Workers {
    /// `GET /metrics`
    pub(super) async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let requests = metrics::requests(&self.state, headers)?;
        Ok(metrics::page(requests + &figures(self).await))
    }

    /// Answers a request of the operator.
    pub(super) async fn admin(&self, parts: &Parts) -> Response {
        let state = &self.state;
        let name = match state.access.authorize(bearer(&parts.headers), Scope::Admin) {
            Ok(grant) => grant.tenant,
            Err(problem) => {
                let mut response = problem.into_response();
                state.access.challenge(&mut response);
                state.metrics.count(None, response.status());
                return response;
            }
        };
        let response = answered(self, parts).await.unwrap_or_else(Problem::into_response);
        state.metrics.count(Some(&name), response.status());
        response
    }
}

async fn answered(workers: &Workers, parts: &Parts) -> Answer {
    let state = &workers.state;
    let path = names(parts.uri.path())?;
    match (&parts.method, path.iter().skip(1).map(String::as_str).collect::<Vec<_>>().as_slice()) {
        (&Method::GET, ["tenants"]) => {
            let mut tenants = Vec::new();
            for worker in workers.all() {
                tenants.push(match worker.is_running().await {
                    true => usage(workers, worker).await?,
                    // What is stored of it is told where it is asked for alone.
                    false => json!({"tenant": worker.name, "sessionsOpen": 0, "runsUnderWay": 0}),
                });
            }
            let is_draining = state.lifecycle.is_draining();
            answers::json(StatusCode::OK, &json!({"tenants": tenants, "isDraining": is_draining}))
        }
        (&Method::GET, ["tenants", name]) => {
            let worker = workers.get(name).ok_or_else(|| Problem::unknown("tenant"))?;
            answers::json(StatusCode::OK, &usage(workers, worker).await?)
        }
        (&Method::POST, ["reload"]) => {
            state.access.reload().map_err(|error| Problem::internal(&error, "token"))?;
            workers.tell(state.lifecycle.is_draining()).await;
            Ok(answers::empty())
        }
        (&Method::POST | &Method::DELETE, ["drain"]) => {
            let is_draining = parts.method == Method::POST;
            state.lifecycle.set_draining(is_draining);
            workers.tell(is_draining).await;
            Ok(answers::empty())
        }
        _ => Err(Problem::unknown("resource")),
    }
}

/// Returns the usage of a tenant, as its worker reports it; requests are counted in this process.
async fn usage(workers: &Workers, worker: &Worker) -> Result<Value, Problem> {
    let (status, text) = worker.look(workers, &format!("/v1/admin/tenants/{}", worker.name)).await?;
    let told = serde_json::from_slice::<Value>(&text).ok().filter(|told| status == StatusCode::OK && told.is_object());
    let mut told = told.ok_or_else(|| Problem::new(StatusCode::BAD_GATEWAY, "worker", "a worker does not tell"))?;
    let counts = workers.state.metrics.of(&worker.name).into_iter();
    told["requestsByStatus"] = counts
        .map(|(status, count)| (status.to_string(), Value::from(count)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    Ok(told)
}
