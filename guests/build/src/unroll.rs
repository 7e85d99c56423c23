//! Unrolling the dispatch loop of an interpreter.
//!
//! The engine looks at the clock at the head of every loop, and the main loop of an interpreter comes back to its head
//! for every bytecode: a fifth of the time goes there. Here the body of the loop is laid out several times in a row, and
//! only the last copy goes back:
//!
//! ```text
//! loop          block
//!   body          loop
//! end               block  body, with its branches to the head going to the end of this block  end
//!                   body
//!                 end
//!               end
//! ```
//!
//! Every loop still has its check, so code that never ends is stopped as before. Each copy also jumps through the table
//! of bytecodes at a place of its own, which processors predict better than one place for all.
//!
//! Before that, locals that a loop only reads are *pinned*: the engine's compiler hands a value that has come together
//! from several branches, such as an argument that may be missing, around such a loop as if each bytecode could change
//! it. What an instruction has just computed it sees as the constant that it is.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::{BlockType, CodeSection, Encode, Instruction, Module, RawSection};
use wasmparser::{FunctionBody, KnownCustom, Name, Operator, Parser, Payload, TypeRef, ValType};

/// How often the body of the loop is laid out. More copies take time to compile, and were not measured to gain more.
pub(crate) const COPIES: u32 = 2;

/// A dispatch loop has at least as many branches back to its head. Fewer mean that the compiler has made something else
/// of the interpreter, and that unrolling must be thought over.
const BRANCHES_MIN: usize = 50;

/// The opcode of `block`.
const BLOCK: u8 = 0x02;

/// Lays out the body of `function`'s dispatch loop `copies` times. The module must have names.
///
/// # Errors
/// When there is no such function, when none of its loops looks like one of an interpreter, or when it branches in a way
/// that is not known here.
pub(crate) fn unroll(core: &[u8], function: &str, copies: u32) -> Result<Vec<u8>> {
    let failed = || format!("could not unroll the loop of `{function}`");
    let index = Index::read(core)?;
    let wanted = index.find(function).with_context(failed)?;
    let (mut module, mut code) = (Module::new(), CodeSection::new());
    for payload in Parser::new(0).parse_all(core) {
        let payload = payload?;
        if let Payload::CodeSectionEntry(body) = &payload {
            if code.len() == wanted {
                let locals = index.locals(wanted, body)?;
                code.raw(&unroll_body(&Body::read(core, body)?, &locals, copies).with_context(failed)?);
            } else {
                code.raw(body.as_bytes());
            }
            if code.len() == index.function_types.len() as u32 {
                module.section(&code);
            }
        } else if let Some((id, range)) = payload.as_section()
            && !matches!(payload, Payload::CodeSectionStart { .. })
        {
            module.section(&RawSection { id, data: &core[range] });
        }
    }
    Ok(module.finish())
}

/// What is said of functions outside of their bodies.
#[derive(Default)]
struct Index {
    parameters: Vec<Vec<ValType>>,
    imported: u32,
    /// Types of the functions that the module defines.
    function_types: Vec<u32>,
    names: Vec<(u32, String)>,
}

impl Index {
    fn read(core: &[u8]) -> Result<Index> {
        let mut index = Index::default();
        for payload in Parser::new(0).parse_all(core) {
            match payload? {
                Payload::TypeSection(types) => {
                    for function in types.into_iter_err_on_gc_types() {
                        index.parameters.push(function?.params().to_vec());
                    }
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        index.imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                    }
                }
                Payload::FunctionSection(types) => {
                    index.function_types = types.into_iter().collect::<Result<_, _>>()?
                }
                Payload::CustomSection(section) => {
                    let KnownCustom::Name(parts) = section.as_known() else { continue };
                    for part in parts {
                        let Name::Function(names) = part? else { continue };
                        for naming in names {
                            let naming = naming?;
                            index.names.push((naming.index, naming.name.to_owned()));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(index)
    }

    /// Which of the functions that the module defines has this name.
    fn find(&self, function: &str) -> Result<u32> {
        let found = self.names.iter().find(|(_, name)| name == function);
        let (index, _) = found.context("the module has no function of that name")?;
        index.checked_sub(self.imported).context("it is imported")
    }

    /// Types of a function's parameters and locals.
    fn locals(&self, function: u32, body: &FunctionBody<'_>) -> Result<Vec<ValType>> {
        let ty = self.function_types.get(function as usize).context("it has no type")?;
        let mut locals = self.parameters.get(*ty as usize).context("its type is unknown")?.clone();
        for group in body.get_locals_reader()? {
            let (count, ty) = group?;
            locals.extend(std::iter::repeat_n(ty, count as usize));
        }
        Ok(locals)
    }
}

/// One instruction.
struct Step {
    /// Where it lies in the module.
    bytes: Range<usize>,
    kind: Kind,
}

/// What matters of an instruction here.
enum Kind {
    /// A loop that takes nothing from the stack.
    Loop,
    /// Any other block.
    Block,
    End,
    Branch(u32),
    BranchIf(u32),
    Table {
        targets: Vec<u32>,
        default: u32,
    },
    Get(u32),
    Set(u32),
    Other,
}

/// A function's body in steps.
struct Body<'a> {
    core: &'a [u8],
    /// Where it lies in the module.
    bytes: Range<usize>,
    steps: Vec<Step>,
}

/// Steps of a loop: the one that opens it, and the one that ends it.
#[derive(Clone, Copy)]
struct Loop {
    open: usize,
    end: usize,
}

impl<'a> Body<'a> {
    fn read(core: &'a [u8], body: &FunctionBody<'_>) -> Result<Self> {
        let mut steps = Vec::new();
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let start = reader.original_position();
            let kind = Kind::of(reader.read()?)?;
            steps.push(Step { bytes: start..reader.original_position(), kind });
        }
        Ok(Self { core, bytes: body.range(), steps })
    }

    fn bytes_of(&self, step: usize) -> &'a [u8] {
        &self.core[self.steps[step].bytes.clone()]
    }

    /// The loop that is branched to most, and before it those that lie around it, outermost first.
    fn dispatch_loops(&self) -> Result<Vec<Loop>> {
        // Each with the branches to it.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut closed: Vec<(Loop, usize)> = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            match step.kind {
                Kind::Loop | Kind::Block => open.push((at, 0)),
                Kind::End => {
                    if let Some((open, branches)) = open.pop()
                        && matches!(self.steps[open].kind, Kind::Loop)
                    {
                        closed.push((Loop { open, end: at }, branches));
                    }
                }
                Kind::Branch(depth) | Kind::BranchIf(depth) => {
                    let target = open.len().checked_sub(depth as usize + 1);
                    if let Some(target) = target {
                        open[target].1 += 1;
                    }
                }
                _ => {}
            }
        }
        let (busiest, branches) = *closed.iter().max_by_key(|(_, branches)| *branches).context("it has no loop")?;
        ensure!(branches >= BRANCHES_MIN, "its busiest loop has {branches} branches, not at least {BRANCHES_MIN}");
        let mut around: Vec<Loop> = closed.iter().map(|(found, _)| *found).collect();
        around.retain(|found| found.open <= busiest.open && found.end >= busiest.end);
        around.sort_by_key(|found| found.open);
        Ok(around)
    }

    /// Computes anew, to what they are already, all locals that a loop reads and does not write.
    fn pin(&self, around: Loop, locals: &[ValType], out: &mut Vec<u8>) {
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        for step in &self.steps[around.open..around.end] {
            match step.kind {
                Kind::Get(local) => read.insert(local),
                Kind::Set(local) => written.insert(local),
                _ => false,
            };
        }
        for local in read.difference(&written) {
            let (zero, or) = match locals.get(*local as usize) {
                Some(ValType::I32) => (Instruction::I32Const(0), Instruction::I32Or),
                Some(ValType::I64) => (Instruction::I64Const(0), Instruction::I64Or),
                _ => continue,
            };
            for instruction in [Instruction::LocalGet(*local), zero, or, Instruction::LocalSet(*local)] {
                instruction.encode(out);
            }
        }
    }

    /// Writes a copy of what is inside a loop, which has `more` labels around it besides those that it had.
    fn copy(&self, inside: Loop, more: u32, out: &mut Vec<u8>) {
        let mut nesting = 0;
        for at in inside.open + 1..inside.end {
            let moved = |depth: &u32| if *depth > nesting { depth + more } else { *depth };
            match &self.steps[at].kind {
                Kind::Branch(depth) => Instruction::Br(moved(depth)).encode(out),
                Kind::BranchIf(depth) => Instruction::BrIf(moved(depth)).encode(out),
                Kind::Table { targets, default } => {
                    let targets: Vec<u32> = targets.iter().map(moved).collect();
                    Instruction::BrTable(targets.into(), moved(default)).encode(out);
                }
                kind => {
                    match kind {
                        Kind::Loop | Kind::Block => nesting += 1,
                        Kind::End => nesting -= 1,
                        _ => {}
                    }
                    out.extend_from_slice(self.bytes_of(at));
                }
            }
        }
    }
}

impl Kind {
    fn of(operator: Operator<'_>) -> Result<Kind> {
        Ok(match operator {
            Operator::Loop { blockty } if !matches!(blockty, wasmparser::BlockType::FuncType(_)) => Kind::Loop,
            Operator::Loop { .. } | Operator::Block { .. } | Operator::If { .. } => Kind::Block,
            Operator::End => Kind::End,
            Operator::Br { relative_depth } => Kind::Branch(relative_depth),
            Operator::BrIf { relative_depth } => Kind::BranchIf(relative_depth),
            Operator::BrTable { targets } => {
                Kind::Table { targets: targets.targets().collect::<Result<_, _>>()?, default: targets.default() }
            }
            Operator::LocalGet { local_index } => Kind::Get(local_index),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => Kind::Set(local_index),
            other => {
                let name = format!("{other:?}");
                let branches = ["Br", "Try", "Catch", "Delegate", "Rethrow", "Resume", "Switch"];
                if branches.iter().any(|prefix| name.starts_with(prefix)) {
                    bail!("it uses `{name}`, which may be a branch");
                }
                Kind::Other
            }
        })
    }
}

fn unroll_body(body: &Body<'_>, locals: &[ValType], copies: u32) -> Result<Vec<u8>> {
    let around = body.dispatch_loops()?;
    let dispatch = *around.last().context("it has no loop")?;
    let head = body.bytes_of(dispatch.open);

    let (mut out, mut written) = (Vec::new(), body.bytes.start);
    for outer in &around {
        let start = body.steps[outer.open].bytes.start;
        out.extend_from_slice(&body.core[written..start]);
        body.pin(*outer, locals, &mut out);
        written = start;
    }
    // A copy that does not branch falls off its end with what the loop results in.
    out.push(BLOCK);
    out.extend_from_slice(&head[1..]);
    out.extend_from_slice(head);
    for _ in 1..copies {
        // This block stands where the loop stood; outside of it there are the loop and the block around that.
        Instruction::Block(BlockType::Empty).encode(&mut out);
        body.copy(dispatch, 2, &mut out);
        Instruction::Br(2).encode(&mut out);
        Instruction::End.encode(&mut out);
    }
    body.copy(dispatch, 1, &mut out);
    Instruction::End.encode(&mut out);
    out.extend_from_slice(&body.core[body.steps[dispatch.end].bytes.start..body.bytes.end]);
    Ok(out)
}

#[cfg(test)]
mod tests;
