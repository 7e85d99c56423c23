//! Runs of one session that take turns where they await, and what ends them, on the probe guest.

use std::{sync::Arc, time::Duration};

use cellar_engine::{
    Bridges, Cell, Event, EventKind, Host, Language, Limits, Outcome, Run, RunResult, Session, SessionConfig,
    bridges::{Call, CallFuture, Caller, Response, denied},
    config::{KernelMode, KernelOptions, Rests},
    limits,
    outcome::FailureKind,
};
use futures::StreamExt;
use tokio::sync::Semaphore;

use crate::{
    sessions::{config, host, kind, on_one_thread, open, outcome, run, text, until_started},
    support::PATIENCE,
};

/// The tool `wait` answers when it is let; an agent runs its prompt in the session of its caller, but for `hold`,
/// which waits like the tool.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>, Language);

impl Gate {
    fn closed() -> Gate {
        Gate::of(Language::Probe)
    }

    /// A closed gate whose agents run cells of a language.
    pub(crate) fn of(language: Language) -> Gate {
        Gate(Arc::new(Semaphore::new(0)), language)
    }

    pub(crate) fn let_through(&self, calls: usize) {
        self.0.add_permits(calls);
    }

    pub(crate) fn session(&self, host: &Host, limits: Limits) -> Session {
        open(host, SessionConfig { bridges: Arc::new(self.clone()), limits, ..SessionConfig::default() })
    }
}

impl Bridges for Gate {
    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let Gate(gate, language) = self.clone();
        let passed = async move {
            gate.acquire().await.expect("open").forget();
            Ok(Response::Json("7".to_owned()))
        };
        match &call {
            Call::Tool { name, .. } if name == "wait" => Box::pin(passed),
            Call::Agent(agent) if agent.prompt == "hold" => Box::pin(passed),
            Call::Agent(agent) => {
                let prompt = agent.prompt.clone();
                Box::pin(async move {
                    let session = caller.session.for_agent(caller.depth + 1);
                    let run = session.run(vec![Cell::new(language, prompt)]).expect("a run");
                    Ok(Response::Text(run.collect_result().await.text()))
                })
            }
            _ => {
                let error = denied(&call);
                Box::pin(async { Err(error) })
            }
        }
    }
}

/// Reads a run until one of its calls is under way.
pub(crate) async fn until_it_calls(run: &mut Run) {
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::CallStarted { .. }) {
            return;
        }
        assert!(!matches!(event.kind, EventKind::CellFinished { .. }), "{event:?}");
    }
}

/// Returns the rest of a run's output.
async fn printed(mut run: Run) -> String {
    let mut printed = String::new();
    while let Some(event) = run.next().await {
        if let EventKind::Stdout { text, .. } = event.kind {
            printed += &text;
        }
    }
    printed
}

#[test]
fn a_run_that_awaits_lets_others_change_what_it_sees() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits::default());
        let mut awaiting = run(&session, "set name Ada\ncall wait {}\nget name");
        until_it_calls(&mut awaiting).await;
        assert_eq!(text(&session, "get name\nset name Grace").await, "Ada");
        gate.let_through(1);
        assert!(printed(awaiting).await.trim_end().ends_with("Grace"));
    });
}

#[test]
fn only_who_serves_a_synchronous_call_is_refused_its_kernel() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits::default());
        // A run that nobody waits for has its turn when the call is over.
        let mut holding = run(&session, "agent-sync hold");
        until_it_calls(&mut holding).await;
        let mut patient = run(&session, "emit patient");
        until_started(&mut patient).await;
        let patient = tokio::spawn(printed(patient));
        tokio::task::yield_now().await;
        assert!(!patient.is_finished());
        gate.let_through(1);
        assert_eq!(outcome(holding).await, Outcome::Complete);
        assert_eq!(patient.await.expect("no panic").trim_end(), "patient");
        // One that the call itself waits for would wait for ever, also at second hand.
        for code in ["agent-sync get name", "agent-sync agent get name"] {
            let answer = text(&session, code).await;
            assert!(answer.contains("blocked by a synchronous agent() call in <cell "), "{answer}");
        }
        // An agent that is awaited may itself block: what it awaits is another call.
        assert!(text(&session, "agent emit seen").await.contains("seen"));
    });
}

#[test]
fn a_reset_interrupts_what_awaits_blocks_or_waits_for_its_turn() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits::default());
        for code in ["call wait {}", "call-sync wait {}", "agent-sync hold", "agent call wait {}", "spin"] {
            let mut running = run(&session, code);
            match code {
                "spin" => until_started(&mut running).await,
                _ => until_it_calls(&mut running).await,
            }
            let running = tokio::spawn(outcome(running));
            let mut queued = run(&session, "sleep 100000");
            until_started(&mut queued).await;
            let queued = tokio::spawn(outcome(queued));
            tokio::task::yield_now().await;
            session.reset(Language::Probe);
            for ended in [running, queued] {
                let ended = tokio::time::timeout(PATIENCE, ended).await.expect("at once");
                assert_eq!(kind(&ended.expect("no panic")), Some(FailureKind::Interrupted), "`{code}`");
            }
            assert_eq!(text(&session, "emit alive").await, "alive");
        }
    });
}

#[test]
fn an_agent_holds_no_place_that_its_own_cells_need() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits { calls_in_flight: 1, ..Limits::default() });
        gate.let_through(1);
        let nested = text(&session, "agent agent call wait {}");
        let answer = tokio::time::timeout(PATIENCE, nested).await.expect("no deadlock");
        assert!(answer.contains('7'), "{answer}");
    });
}

#[test]
fn kernels_past_the_budget_sleep_and_go_on_when_they_are_asked() {
    on_one_thread(async {
        let rests = Rests { awake_max: 2, hibernate_after: None, ..Rests::default() };
        // With more than two awake there would be no room for the third.
        let config = cellar_engine::HostConfig { rests, ..config(3) };
        let host = Host::open(config).expect("a host");
        let sessions: Vec<Session> = (0..8).map(|_| open(&host, SessionConfig::default())).collect();
        for (number, session) in sessions.iter().enumerate() {
            assert_eq!(text(session, &format!("set number {number}\nget number")).await, number.to_string());
        }
        for (number, session) in sessions.iter().enumerate() {
            assert_eq!(text(session, "get number").await, number.to_string());
        }
    });
}

/// A cell with a time limit in seconds.
fn limited(session: &Session, code: &str, seconds: u64) -> Run {
    let mut cell = Cell::new(Language::Probe, code);
    cell.timeout = Some(Duration::from_secs(seconds));
    session.run(vec![cell]).expect("a run")
}

/// Limits with which no cell ends of itself while a test waits.
fn unhurried() -> Limits {
    Limits { timeout: 5 * PATIENCE, timeout_max: 5 * PATIENCE, ..Limits::default() }
}

#[test]
fn a_waiting_cell_ends_on_time_while_another_run_computes() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), unhurried());
        for (waits, computes) in [
            ("set kept 1\nsleep 100000000", "spin"),
            ("set kept 1\ncall wait {}", "spin"),
            ("set kept 1\ncall wait {}", "block 100000000"),
            ("set kept 1\ncall wait {}", "call-sync wait {}"),
        ] {
            let mut waiting = limited(&session, waits, 1);
            until_started(&mut waiting).await;
            let mut computing = run(&session, computes);
            until_started(&mut computing).await;
            let computing = tokio::spawn(outcome(computing));
            let ended = tokio::time::timeout(PATIENCE, outcome(waiting)).await.expect("its deadline is its own");
            assert_eq!(kind(&ended), Some(FailureKind::Timeout), "`{waits}` beside `{computes}`");
            let Outcome::Failed(failure) = &ended else { unreachable!("it failed") };
            assert!(failure.state_kept && failure.message.contains("time limit of 1 s"), "{failure:?}");
            assert!(!computing.is_finished(), "`{computes}` goes on");
            computing.abort();
            assert_eq!(text(&session, "get kept").await, "1");
        }
    });
}

#[test]
fn a_waiting_cell_is_cancelled_while_another_run_computes() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), unhurried());
        let mut waiting = run(&session, "call wait {}");
        until_it_calls(&mut waiting).await;
        let stop = waiting.canceller();
        let waiting = tokio::spawn(outcome(waiting));
        let mut computing = run(&session, "spin");
        until_started(&mut computing).await;
        let computing = tokio::spawn(outcome(computing));
        stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, waiting).await.expect("at once").expect("no panic");
        assert_eq!(kind(&ended), Some(FailureKind::Interrupted));
        assert!(!computing.is_finished());
        computing.abort();
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn a_cell_that_waits_for_an_agent_ends_on_time_and_so_do_the_cells_of_the_agent() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), unhurried());
        let mut waiting = limited(&session, "set kept 1\nagent spin", 1);
        until_it_calls(&mut waiting).await;
        let ended = tokio::time::timeout(PATIENCE, outcome(waiting)).await.expect("its deadline is its own");
        assert_eq!(kind(&ended), Some(FailureKind::Timeout));
        let alive = tokio::time::timeout(PATIENCE, text(&session, "get kept")).await;
        assert_eq!(alive.expect("the agent's cell has ended"), "1");
    });
}

/// Starts as many cells as may wait on a kernel at the same time, less `free`.
async fn fill(session: &Session, free: usize) -> Vec<Run> {
    let mut waiting = Vec::new();
    for _ in free..limits::CELLS_LIVE_MAX {
        let mut run = run(session, "call wait {}");
        until_it_calls(&mut run).await;
        waiting.push(run);
    }
    waiting
}

#[test]
fn a_cell_beyond_those_that_may_wait_has_its_turn_when_one_has_ended() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits { calls_in_flight: 256, ..Limits::default() });
        let mut waiting = fill(&session, 0).await;
        let mut others = Vec::new();
        for code in ["emit first", "emit second", "emit third"] {
            let mut run = run(&session, code);
            until_started(&mut run).await;
            others.push((run.canceller(), tokio::spawn(printed(run))));
        }
        // One that is cancelled while it waits ends at once.
        others[1].0.cancel();
        let (_, second) = others.remove(1);
        let cancelled = tokio::time::timeout(PATIENCE, second).await.expect("at once");
        assert_eq!(cancelled.expect("no panic"), "");
        assert!(others.iter().all(|(_, run)| !run.is_finished()));
        drop(waiting.pop());
        for (_, run) in others {
            let printed = tokio::time::timeout(PATIENCE, run).await.expect("it has its turn").expect("no panic");
            assert!(["first", "third"].contains(&printed.trim_end()), "{printed}");
        }
        session.reset(Language::Probe);
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn a_cell_that_another_one_waits_for_does_not_wait_behind_it() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits { calls_in_flight: 256, ..Limits::default() });
        let _waiting = fill(&session, 1).await;
        let nested = text(&session, "agent agent emit child");
        let answer = tokio::time::timeout(PATIENCE, nested).await.expect("no deadlock");
        assert!(answer.contains("child"), "{answer}");
    });
}

#[test]
fn cells_that_wait_for_their_turn_are_bounded_and_end_with_their_kernel() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits { calls_in_flight: 256, ..Limits::default() });
        let _waiting = fill(&session, 0).await;
        let mut queued = Vec::new();
        for _ in 0..limits::CELLS_WAITING_MAX {
            let mut run = run(&session, "emit never");
            until_started(&mut run).await;
            queued.push(tokio::spawn(outcome(run)));
            tokio::task::yield_now().await;
        }
        let refused = text(&session, "emit never").await;
        assert!(refused.contains("256 cells wait for their turn"), "{refused}");
        session.reset(Language::Probe);
        for run in queued {
            let ended = tokio::time::timeout(PATIENCE, run).await.expect("at once").expect("no panic");
            assert_eq!(kind(&ended), Some(FailureKind::Interrupted));
        }
    });
}

#[test]
fn a_run_that_is_ended_by_a_reset_is_not_told_that_its_state_is_kept() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits::default());
        for code in ["call wait {}", "call-sync wait {}", "block 100000", "spin"] {
            let cells = vec![Cell::new(Language::Probe, "set a 1"), Cell::new(Language::Probe, code)];
            let mut running = session.run(cells).expect("a run");
            while let Some(event) = running.next().await {
                if matches!(event.kind, EventKind::CellStarted { index: 1, .. }) {
                    break;
                }
            }
            let mut result = RunResult::default();
            let reading = tokio::spawn(async move {
                let mut told = Vec::new();
                while let Some(event) = running.next().await {
                    told.push(event);
                }
                told
            });
            tokio::time::sleep(Duration::from_millis(50)).await;
            session.reset(Language::Probe);
            let cells = vec![Cell::new(Language::Probe, "set a 1"), Cell::new(Language::Probe, code)];
            result.apply(&Event { seq: 0, kind: EventKind::RunStarted { session: String::new(), cells } });
            for event in reading.await.expect("no panic") {
                result.apply(&event);
            }
            let failure = result.cells[1].failure.clone().expect("it failed");
            assert!(!failure.state_kept && failure.message.contains("reset"), "`{code}`: {failure:?}");
            assert!(!result.text().contains("is kept"), "`{code}`: {}", result.text());
        }
    });
}

#[test]
fn what_a_failure_says_of_earlier_cells_is_true_when_the_kernel_is_another_one() {
    on_one_thread(async {
        let gate = Gate::closed();
        let session = gate.session(&host(), Limits::default());
        let fails = || Cell::new(Language::Probe, "raise no");
        let sets = || Cell::new(Language::Probe, "set a 1");
        let said = |cells: Vec<Cell>| session.run(cells).expect("a run").collect_result();
        assert!(said(vec![sets(), fails()]).await.text().ends_with("What earlier cells made is kept."));
        let gone = "What earlier cells made is not kept: the probe has a new kernel.";
        let reset = Cell { reset: true, ..fails() };
        let title = Language::Probe.title();
        let gone = gone.replace("the probe", title);
        let after_own = said(vec![sets(), reset]).await.text();
        assert!(after_own.ends_with(&gone), "{after_own}");
        // Another run resets the kernel between two cells of this one.
        let mut running = session.run(vec![sets(), fails()]).expect("a run");
        let mut result = RunResult::default();
        while let Some(event) = running.next().await {
            result.apply(&event);
            if matches!(event.kind, EventKind::CellFinished { index: 0, .. }) {
                session.reset(Language::Probe);
            }
        }
        assert!(result.text().ends_with(&gone), "{}", result.text());
        assert!(result.cells[1].statuses.iter().any(|status| status.op == "kernel_replaced"));
        // A kernel for each call keeps nothing.
        let kernels = KernelOptions { mode: KernelMode::PerCall, ..KernelOptions::default() };
        let session = open(&host(), SessionConfig { kernels, ..SessionConfig::default() });
        let text = session.run(vec![sets(), fails()]).expect("a run").collect_result().await.text();
        assert!(text.ends_with(&gone), "{text}");
    });
}

#[test]
fn an_agents_cell_that_asks_for_input_is_refused_at_once() {
    on_one_thread(async {
        let gate = Gate::closed();
        let config = SessionConfig {
            bridges: Arc::new(gate.clone()),
            input: Some(Duration::from_secs(300)),
            ..SessionConfig::default()
        };
        let session = open(&host(), config);
        for code in ["agent input name?", "agent input-sync name?"] {
            let answer = tokio::time::timeout(PATIENCE, text(&session, code)).await.expect("at once");
            assert!(answer.contains("input"), "{answer}");
        }
        // One whose reader answers gets its line.
        let agent = session.for_agent(1);
        let mut asking = agent.run(vec![Cell::new(Language::Probe, "input name?")]).expect("a run").answers_input();
        let mut said = String::new();
        while let Some(event) = asking.next().await {
            match event.kind {
                EventKind::InputRequest { request_id, .. } => {
                    session.submit_input(&request_id, "Ada".to_owned()).expect("open");
                }
                EventKind::Stdout { text, .. } => said += &text,
                _ => {}
            }
        }
        assert_eq!(said.trim_end(), "Ada");
    });
}
