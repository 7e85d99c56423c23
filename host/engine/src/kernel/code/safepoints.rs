//! Safepoints: checks by which a guest that polls no epoch can be stopped.
//!
//! At the head of every loop, and at the beginning of functions that may call themselves in the end, the guest checks one byte of its
//! memory, and calls the host where it is not 0:
//!
//! ```text
//! (if (i32.load8_u offset=ADDRESS (i32.const 0)) (then (call $give_way)))
//! ```
//!
//! That is cheaper than an epoch, which has two values of its own to be kept at hand and compared at the same places: a byte
//! at a fixed place in memory is one instruction away. Every cycle passes the head of a loop and every recursion the beginning
//! of a function, so no code goes on for long without looking.
//!
//! The guest may not call the host during an allocation by which the host passes values to it. A global marks that time; a safepoint that
//! is reached then does nothing, and the next one checks again.

use wasm_encoder::{
    BlockType, BranchHint, BranchHints, CodeSection, Component, ConstExpr, Encode, ExportSection, Function, GlobalType,
    Instruction, MemArg, Module, RawSection, ValType,
};
use wasmparser::{BinaryReader, Chunk, Export, ExternalKind, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::{contract::error::Cause, kernel::border::WORLD_PACKAGE};

/// The export whose code names the address of the byte; see `guests/common/safepoint.c`.
const ADDRESS: &str = "cellar_safepoint";
/// Interface and name of the import that is called.
const GIVE_WAY: (&str, &str) = ("control@", "give-way");
/// Prefixes of the exports during which the guest may not call the host: it allocates or frees memory for what it passes.
const CLOSED: [&str; 2] = ["cabi_realloc", "cabi_post_"];

/// Adds safepoints to that module of a baked component which is the guest.
///
/// # Errors
/// Says what is not as guests are built.
pub(super) fn add_safepoints(component: &[u8]) -> Result<Vec<u8>, Cause> {
    let mut changed = Component::new();
    let (mut parser, mut at, mut guests) = (Parser::new(0), 0, 0_usize);
    loop {
        let left = component.get(at..).ok_or("it ends early")?;
        let Chunk::Parsed { consumed, payload } = parser.parse(left, true)? else { return Err("it ends early".into()) };
        at = at.saturating_add(consumed);
        let Some((id, range)) = payload.as_section() else {
            match payload {
                Payload::Version { .. } => continue,
                Payload::End(_) => break,
                _ => return Err("it has a part of an unknown kind".into()),
            }
        };
        let mut data = component.get(range.clone()).ok_or("it ends early")?;
        let with_safepoints;
        // The parser goes on behind what is nested.
        at = at.max(range.end);
        if let Payload::ModuleSection { .. } = payload
            && let Some(guest) = Guest::find(data)?
        {
            with_safepoints = guest.with_safepoints(data)?;
            data = &with_safepoints;
            guests = guests.saturating_add(1);
        }
        changed.section(&RawSection { id, data });
    }
    if guests != 1 {
        return Err(format!("{guests} of its modules are guests").into());
    }
    Ok(changed.finish())
}

/// Facts about the guest's module, gathered before its code is changed.
struct Guest<'a> {
    /// Numbers of parameters and results of each function type.
    arities: Vec<(usize, usize)>,
    /// Type of each function, imported ones first.
    types: Vec<u32>,
    functions_imported: u32,
    globals: u32,
    exports: Vec<Export<'a>>,
    give_way: u32,
    /// Address of the safepoint byte.
    address: u64,
    /// True for each function that begins with a check; imported ones are not listed.
    entries: Vec<bool>,
}

impl<'a> Guest<'a> {
    /// `None` for a module that does not import what safepoints call.
    fn find(module: &'a [u8]) -> Result<Option<Guest<'a>>, Cause> {
        let (mut arities, mut types, mut functions_imported, mut globals) = (Vec::new(), Vec::new(), 0_u32, 0_u32);
        let (mut give_way, mut exports, mut bodies) = (None, Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => {
                    for ty in section.into_iter_err_on_gc_types() {
                        let ty = ty?;
                        arities.push((ty.params().len(), ty.results().len()));
                    }
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import?;
                        match import.ty {
                            TypeRef::Func(ty) => {
                                let interface = import.module.strip_prefix(WORLD_PACKAGE);
                                if interface.is_some_and(|interface| interface.starts_with(GIVE_WAY.0))
                                    && import.name == GIVE_WAY.1
                                {
                                    give_way = Some(functions_imported);
                                }
                                types.push(ty);
                                functions_imported = functions_imported.saturating_add(1);
                            }
                            TypeRef::Global(_) => globals = globals.saturating_add(1),
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(functions) => {
                    for ty in functions {
                        types.push(ty?);
                    }
                }
                Payload::GlobalSection(section) => globals = globals.saturating_add(section.count()),
                Payload::ExportSection(section) => exports = section.into_iter().collect::<Result<_, _>>()?,
                Payload::CodeSectionEntry(body) => bodies.push(body),
                _ => {}
            }
        }
        let Some(give_way) = give_way else { return Ok(None) };
        let named = exports.iter().find(|export| export.name == ADDRESS && export.kind == ExternalKind::Func);
        let place = named.and_then(|export| export.index.checked_sub(functions_imported));
        let body = place.and_then(|place| bodies.get(usize::try_from(place).ok()?));
        let calls = bodies.iter().map(Calls::of).collect::<Result<Vec<_>, _>>()?;
        let entries = entries(&calls, functions_imported);
        let address = constant(body.ok_or_else(|| format!("it exports no `{ADDRESS}`"))?)?;
        Ok(Some(Guest { arities, types, functions_imported, globals, exports, give_way, address, entries }))
    }

    /// The guest with safepoints.
    fn with_safepoints(&self, module: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut added = Added { next: u32::try_from(self.types.len())?, types: Vec::new(), bodies: Vec::new() };
        let is_closed = self.globals;
        let give_way = added.push(self.type_of(self.give_way)?, {
            let mut body = Function::new([]);
            body.instruction(&Instruction::GlobalGet(is_closed))
                .instruction(&Instruction::If(BlockType::Empty))
                .instruction(&Instruction::Return)
                .instruction(&Instruction::End)
                .instruction(&Instruction::Call(self.give_way))
                .instruction(&Instruction::End);
            body
        });
        let mut exports = ExportSection::new();
        for export in &self.exports {
            let mut index = export.index;
            if export.kind == ExternalKind::Func && CLOSED.iter().any(|name| export.name.starts_with(name)) {
                let ty = self.type_of(index)?;
                let (takes, _) =
                    self.arities.get(usize::try_from(ty)?).ok_or("it has a function of an unknown type")?;
                index = added.push(ty, closed(index, u32::try_from(*takes)?, is_closed));
            }
            exports.export(export.name, export.kind.into(), index);
        }
        let check = Check::new(self.address, give_way);
        let mut at_entry = self.entries.iter();
        let (mut changed, mut code, mut hints) = (Module::new(), CodeSection::new(), BranchHints::new());
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload?;
            let Some((id, range)) = payload.as_section() else {
                if let Payload::CodeSectionEntry(body) = &payload {
                    let (body, branches) = check.insert(module, body, at_entry.next().is_some_and(|check| *check))?;
                    if !branches.is_empty() {
                        hints.function_hints(self.functions_imported.saturating_add(code.len()), branches);
                    }
                    code.raw(&body);
                    if self.functions_imported.saturating_add(code.len()) == u32::try_from(self.types.len())? {
                        for body in &added.bodies {
                            code.function(body);
                        }
                        changed.section(&hints).section(&code);
                    }
                }
                continue;
            };
            let data = module.get(range).ok_or("it ends early")?;
            match payload {
                Payload::FunctionSection(_) => {
                    let types = added.types.iter().map(encoded).collect::<Vec<_>>();
                    changed.section(&RawSection { id, data: &appended(data, &types)? });
                }
                Payload::GlobalSection(_) => {
                    let mut global = Vec::new();
                    GlobalType { val_type: ValType::I32, mutable: true, shared: false }.encode(&mut global);
                    ConstExpr::i32_const(0).encode(&mut global);
                    changed.section(&RawSection { id, data: &appended(data, &[global])? });
                }
                Payload::ExportSection(_) => {
                    changed.section(&exports);
                }
                Payload::CodeSectionStart { .. } => {}
                _ => {
                    changed.section(&RawSection { id, data });
                }
            }
        }
        Ok(changed.finish())
    }

    fn type_of(&self, function: u32) -> Result<u32, Cause> {
        Ok(*self.types.get(usize::try_from(function)?).ok_or("it has a function without a type")?)
    }
}

/// Functions that are added behind all others.
struct Added {
    next: u32,
    types: Vec<u32>,
    bodies: Vec<Function>,
}

impl Added {
    fn push(&mut self, ty: u32, body: Function) -> u32 {
        self.types.push(ty);
        self.bodies.push(body);
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }
}

/// Calls a function of so many parameters while `is_closed` is set. What it gives stays on the stack.
fn closed(function: u32, takes: u32, is_closed: u32) -> Function {
    let mut body = Function::new([]);
    body.instruction(&Instruction::I32Const(1)).instruction(&Instruction::GlobalSet(is_closed));
    for parameter in 0..takes {
        body.instruction(&Instruction::LocalGet(parameter));
    }
    body.instruction(&Instruction::Call(function));
    body.instruction(&Instruction::I32Const(0)).instruction(&Instruction::GlobalSet(is_closed));
    body.instruction(&Instruction::End);
    body
}

/// Instructions to insert, and the offset of the branch in them.
struct Check {
    bytes: Vec<u8>,
    branch: usize,
}

impl Check {
    fn new(address: u64, give_way: u32) -> Check {
        let mut bytes = Vec::new();
        Instruction::I32Const(0).encode(&mut bytes);
        Instruction::I32Load8U(MemArg { offset: address, align: 0, memory_index: 0 }).encode(&mut bytes);
        let branch = bytes.len();
        let rest = [Instruction::If(BlockType::Empty), Instruction::Call(give_way), Instruction::End];
        rest.iter().for_each(|instruction| instruction.encode(&mut bytes));
        Check { bytes, branch }
    }

    /// A function's body with checks, and where their branches are in it.
    fn insert(
        &self,
        module: &[u8],
        body: &FunctionBody<'_>,
        at_entry: bool,
    ) -> Result<(Vec<u8>, Vec<BranchHint>), Cause> {
        let range = body.range();
        let mut operators = body.get_operators_reader()?;
        let mut places = Vec::new();
        if at_entry {
            places.push(operators.original_position());
        }
        while !operators.eof() {
            if let Operator::Loop { .. } = operators.read()? {
                places.push(operators.original_position());
            }
        }
        let (mut changed, mut hints, mut from) = (Vec::with_capacity(range.len()), Vec::new(), range.start);
        for place in places {
            changed.extend_from_slice(module.get(from..place).ok_or("it ends early")?);
            let branch_func_offset = u32::try_from(changed.len().saturating_add(self.branch))?;
            hints.push(BranchHint { branch_func_offset, branch_hint_value: 0 });
            changed.extend_from_slice(&self.bytes);
            from = place;
        }
        changed.extend_from_slice(module.get(from..range.end).ok_or("it ends early")?);
        Ok((changed, hints))
    }
}

/// Returns which functions begin with a check: each that calls through a table, and so many of those that call each other in a cycle that
/// no cycle is without one. `calls` has the calls of each function that is not imported.
fn entries(calls: &[Calls], imported: u32) -> Vec<bool> {
    let mut checked: Vec<bool> = calls.iter().map(|calls| calls.any).collect();
    // Of each: 0 is new, 1 is on the way that leads here, 2 is done.
    let mut states = vec![0_u8; calls.len()];
    for first in 0..calls.len() {
        let mut way = vec![(first, 0)];
        while let Some((function, next)) = way.pop() {
            if next == 0 {
                if states[function] != 0 || checked[function] {
                    continue;
                }
                states[function] = 1;
            }
            let Some(called) = calls[function].named.get(next) else {
                states[function] = 2;
                continue;
            };
            way.push((function, next.saturating_add(1)));
            let Some(called) = called.checked_sub(imported).and_then(|called| usize::try_from(called).ok()) else {
                continue;
            };
            match states.get(called) {
                Some(0) => way.push((called, 0)),
                // A circle: one of it has a check.
                Some(1) => checked[called] = true,
                _ => {}
            }
        }
    }
    checked
}

/// Calls that a function makes.
struct Calls {
    named: Vec<u32>,
    /// True if it calls through a table or a reference.
    any: bool,
}

impl Calls {
    fn of(body: &FunctionBody<'_>) -> Result<Calls, Cause> {
        let mut calls = Calls { named: Vec::new(), any: false };
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                    calls.named.push(function_index)
                }
                Operator::CallIndirect { .. }
                | Operator::ReturnCallIndirect { .. }
                | Operator::CallRef { .. }
                | Operator::ReturnCallRef { .. } => calls.any = true,
                _ => {}
            }
        }
        Ok(calls)
    }
}

/// Returns the constant that a function returns; an error if its body is anything but a constant.
fn constant(body: &FunctionBody<'_>) -> Result<u64, Cause> {
    let operators = body.get_operators_reader()?.into_iter().collect::<Result<Vec<_>, _>>()?;
    match operators.as_slice() {
        [Operator::I32Const { value }, Operator::End] => Ok(u64::from(value.cast_unsigned())),
        _ => Err(format!("`{ADDRESS}` does not give a constant").into()),
    }
}

fn encoded(value: &u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// The content of a section with more items.
fn appended(section: &[u8], items: &[Vec<u8>]) -> Result<Vec<u8>, Cause> {
    let mut reader = BinaryReader::new(section, 0);
    let count = reader.read_var_u32()?;
    let mut bytes = encoded(&count.saturating_add(u32::try_from(items.len())?));
    bytes.extend_from_slice(&section[reader.original_position()..]);
    items.iter().for_each(|item| bytes.extend_from_slice(item));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions 0 and 1 are imported.
    fn checked(calls: &[(&[u32], bool)]) -> Vec<bool> {
        let calls: Vec<Calls> = calls.iter().map(|(named, any)| Calls { named: named.to_vec(), any: *any }).collect();
        entries(&calls, 2)
    }

    #[test]
    fn no_circle_of_calls_is_without_a_check() {
        assert_eq!(checked(&[(&[0, 1, 3], false), (&[4, 4], false), (&[], false)]), [false; 3]);
        assert_eq!(checked(&[(&[2], false), (&[2], false)]), [true, false]);
        assert_eq!(checked(&[(&[], true), (&[2], false)]), [true, false]);
        // Two circles that meet in function 3, and one that calls through a table.
        let circles: [(&[u32], bool); 5] =
            [(&[3], false), (&[2, 4], false), (&[3], false), (&[6], false), (&[5], true)];
        assert_eq!(checked(&circles).iter().filter(|check| **check).count(), 3);
        assert!(checked(&circles)[4]);
    }

    #[test]
    fn what_is_no_guest_is_refused() {
        let error = add_safepoints(&Component::new().finish()).expect_err("a component without modules");
        assert_eq!(error.to_string(), "0 of its modules are guests");
        add_safepoints(b"no component").expect_err("no component");
    }
}
