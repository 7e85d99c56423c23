//! Border between host and guest: the generated bindings of `wit/`, their translation, and the host's queries to the guest.

mod bindings;
mod introspection;

pub(crate) use bindings::{
    Kernel, KernelPre, WORLD_PACKAGE, WORLD_VERSION, agents, answer, answer_of, control, fetches, files, http, input,
    llm, mime_bundle, output, primitives, processes, session, stop_kind, stop_name, tables, tools, types,
};
pub(crate) use introspection::{Answer, Question};
