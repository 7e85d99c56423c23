use super::*;
use wasm_encoder::{ExportKind, ExportSection, Function, FunctionSection, NameMap, NameSection, TypeSection};

/// Opcodes of the interpreter below.
const OPCODES: u32 = 64;

const SEED: u32 = 0;
const STEPS: u32 = 1;
const SUM: u32 = 2;
const FACTOR: u32 = 3;

/// A module with an interpreter of random code, `run(seed, steps) -> sum`. Its handlers go back to the head of the loop,
/// leave by a branch, by `return` and by falling off the end, and hold loops and blocks of their own.
fn interpreter() -> Vec<u8> {
    use Instruction::*;
    let i64_result = BlockType::Result(wasm_encoder::ValType::I64);
    let mut code = vec![I64Const(6_364_136_223_846_793_005), LocalSet(FACTOR), Block(i64_result), Loop(i64_result)];
    // Out of steps: leaves with the sum, past the loop.
    code.extend([LocalGet(SUM), LocalGet(STEPS), I32Eqz, BrIf(1), Drop]);
    code.extend([LocalGet(STEPS), I32Const(1), I32Sub, LocalSet(STEPS)]);
    code.extend([LocalGet(SEED), LocalGet(FACTOR), I64Mul, I64Const(12345), I64Add, LocalSet(SEED)]);
    code.extend((0..OPCODES).map(|_| Block(BlockType::Empty)));
    code.extend([LocalGet(SEED), I64Const(40), I64ShrU, I32WrapI64, I32Const(63), I32And]);
    code.push(BrTable((0..OPCODES - 1).collect(), OPCODES - 1));
    for opcode in 0..OPCODES {
        // The blocks of later opcodes are around this one's code.
        let head = OPCODES - 1 - opcode;
        code.extend([End, LocalGet(SUM), I64Const(i64::from(opcode) * 2 + 3), I64Mul, LocalGet(SEED), I64Xor]);
        code.push(LocalSet(SUM));
        match opcode {
            7 => {
                code.extend([Block(BlockType::Empty), LocalGet(STEPS), I32Const(3), I32And, BrIf(0), Br(head + 1), End])
            }
            // A loop of its own, which drops the seed's low bits one by one until none is set.
            8 => code.extend([
                Loop(BlockType::Empty),
                LocalGet(SEED),
                I64Const(1),
                I64ShrU,
                LocalTee(SEED),
                I64Const(1),
                I64And,
                I32WrapI64,
                BrIf(0),
                End,
            ]),
            9 => code.extend([LocalGet(STEPS), I32Const(31), I32And, I32Eqz]),
            _ => {}
        }
        match opcode {
            9 => code.extend([If(BlockType::Empty), LocalGet(SUM), I64Const(1), I64Add, Return, End, Br(head)]),
            10 => code.extend([LocalGet(SUM), Br(head + 1)]),
            // The last one falls off the end.
            63 => code.push(LocalGet(SUM)),
            _ => code.push(Br(head)),
        }
    }
    code.extend([End, End, End]);
    module(&code)
}

fn module(code: &[Instruction<'_>]) -> Vec<u8> {
    use wasm_encoder::ValType::{I32, I64};
    let (mut types, mut functions, mut exports, mut bodies) =
        (TypeSection::new(), FunctionSection::new(), ExportSection::new(), CodeSection::new());
    types.ty().function([], []);
    types.ty().function([I64, I32], [I64]);
    // One before and one after, which must stay as they are.
    for ty in [0, 1, 0] {
        functions.function(ty);
    }
    exports.export("run", ExportKind::Func, 1);
    let mut empty = Function::new([]);
    empty.instruction(&Instruction::End);
    let mut run = Function::new([(2, I64)]);
    for instruction in code {
        run.instruction(instruction);
    }
    bodies.function(&empty).function(&run).function(&empty);
    let (mut names, mut map) = (NameSection::new(), NameMap::new());
    map.append(1, "interpret");
    names.functions(&map);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&exports).section(&bodies).section(&names);
    module.finish()
}

/// Sums of runs with many seeds and lengths.
fn run(core: &[u8]) -> Vec<i64> {
    let engine = wasmtime::Engine::default();
    let module = wasmtime::Module::new(&engine, core).unwrap();
    let mut store = wasmtime::Store::new(&engine, ());
    let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
    let run = instance.get_typed_func::<(i64, i32), i64>(&mut store, "run").unwrap();
    (0..500).map(|n| run.call(&mut store, (n * 0x0123_4567_89AB, (n as i32 * 7) % 300)).unwrap()).collect()
}

#[test]
fn an_unrolled_interpreter_does_the_same() {
    let plain = interpreter();
    let expected = run(&plain);
    assert!(expected.iter().collect::<BTreeSet<_>>().len() > 100, "the runs differ");
    for copies in 1..=5 {
        let unrolled = unroll(&plain, "interpret", copies).unwrap();
        wasmparser::validate(&unrolled).unwrap();
        assert_eq!(run(&unrolled), expected, "{copies} copies");
        assert!(unrolled.len() + 100 > plain.len() * copies as usize / 2, "{copies} copies take room");
    }
}

#[test]
fn what_is_no_interpreter_is_an_error() {
    let plain = interpreter();
    assert!(format!("{:#}", unroll(&plain, "missing", 2).unwrap_err()).contains("no function of that name"));
    let idle =
        module(&[Instruction::Loop(BlockType::Empty), Instruction::End, Instruction::I64Const(1), Instruction::End]);
    assert!(format!("{:#}", unroll(&idle, "interpret", 2).unwrap_err()).contains("0 branches"));
}
