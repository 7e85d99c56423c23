//! Border between host and guest: the generated bindings of `wit/`, their translation, and the host's queries to the guest.

mod bindings;
mod introspection;

pub(crate) use bindings::{
    Kernel, KernelPre, WORLD_PACKAGE, WORLD_VERSION, agents, control, files, http, input, llm, mime_bundle, output,
    stop_kind, stop_name, tools, types,
};
pub(crate) use introspection::{Answer, Question};
