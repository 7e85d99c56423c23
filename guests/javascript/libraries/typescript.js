// TypeScript to JavaScript: what only TypeScript knows becomes blanks, so that every position stays what it was.
//
// Enums, namespaces and parameter properties become JavaScript on the lines where they stand. What else has no meaning without
// TypeScript's compiler (decorators, `import x = require()`) is an error that says so. JSX becomes calls where it stands (jsx.js).
import { parse } from "@babel/parser";

const { JSX, factoryOf } = kit.library("jsx");

// Nodes that are blank as a whole.
const ERASED = new Set([
  "TSInterfaceDeclaration", "TSTypeAliasDeclaration", "TSTypeAnnotation", "TSTypeParameterDeclaration",
  "TSTypeParameterInstantiation", "TSDeclareFunction", "TSDeclareMethod", "TSIndexSignature", "TSNamespaceExportDeclaration",
]);
// Modifiers of members and parameters that stand before their name.
const MODIFIERS = new Set(["public", "private", "protected", "readonly", "abstract", "override", "declare"]);
const UNSUPPORTED = {
  TSImportEqualsDeclaration: "import x = ... is",
  TSExportAssignment: "export = is",
  Decorator: "decorators are",
};

// Properties of nodes that hold no nodes.
const NO_NODES = new Set(["loc", "extra", "errors", "tokens"]);

// The names that a pattern binds.
function namesIn(pattern) {
  switch (pattern?.type) {
    case "Identifier": return [pattern.name];
    case "ObjectPattern": return pattern.properties.flatMap((one) => namesIn(one.type === "RestElement" ? one.argument : one.value));
    case "ArrayPattern": return pattern.elements.flatMap(namesIn);
    case "AssignmentPattern": return namesIn(pattern.left);
    case "RestElement": return namesIn(pattern.argument);
    default: return [];
  }
}

class Stripper {
  constructor(source, file, exports) {
    this.source = source;
    this.exports = exports;
    this.file = file;
    // Ranges to become blank, or another text; and single characters to put in: position, character.
    this.blanks = [];
    this.marks = [];
    // What elements of JSX call; found when the first is met.
    this.jsx = undefined;
  }

  unsupported(node, what) {
    const { line, column } = node.loc.start;
    const error = new SyntaxError(`${what} not supported: types are removed, and what else TypeScript adds is not compiled (${this.file}:${line}:${column + 1})`);
    error.code = "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX";
    error.stack = `SyntaxError: ${error.message}\n    at ${this.file}:${line}:${column + 1}`;
    throw error;
  }

  blank(start, end) {
    if (end > start) this.blanks.push([start, end]);
  }

  // Puts a text in the place of a range, all of whose line ends stay.
  replace(start, end, text) {
    this.blanks.push([start, end, text + this.source.slice(start, end).replace(/[^\n\r\u2028\u2029]/g, "")]);
  }

  // A statement that goes may have been what ended the one before it.
  eraseStatement(node) {
    this.blank(node.start, node.end);
    this.marks.push([node.start, ";"]);
  }

  // Blanks a token that stands between two positions, such as the `?` of an optional parameter.
  blankToken(text, from, to) {
    const at = this.find(text, from, to);
    if (at >= 0) this.blank(at, at + text.length);
  }

  // Where a token begins, comments left out.
  find(text, from, to) {
    const { source } = this;
    for (let at = from; at < to; at++) {
      if (source.startsWith("//", at)) at = source.indexOf("\n", at);
      else if (source.startsWith("/*", at)) at = source.indexOf("*/", at) + 1;
      else if (source.startsWith(text, at)) return at;
      if (at < from) return -1;
    }
    return -1;
  }

  // Modifiers before the name of a member or parameter. A member whose name is computed could then be taken for a part
  // of the member before it.
  modifiers(node, end) {
    const word = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|[A-Za-z]+/gy;
    let at = node.start;
    let first = -1;
    for (;;) {
      while (/\s/.test(this.source[at] ?? "") && at < end) at++;
      word.lastIndex = at;
      const match = word.exec(this.source);
      if (match === null || match.index >= end) break;
      at = word.lastIndex;
      if (!MODIFIERS.has(match[0])) {
        if (match[0].startsWith("/") || match[0] === "static" || match[0] === "async" || match[0] === "accessor") continue;
        break;
      }
      if (first < 0) first = match.index;
      this.blank(match.index, at);
    }
    if (first >= 0 && node.computed) this.marks.push([first, ";"]);
  }

  // Walks with a stack of its own: source may be nested deeply.
  strip(program) {
    this.program = program;
    const stack = (this.stack = [program]);
    while (stack.length > 0) {
      const node = stack.pop();
      if (Array.isArray(node)) {
        for (const item of node) if (item !== null && typeof item === "object") stack.push(item);
        continue;
      }
      if (!this.visit(node)) continue;
      for (const key in node) {
        const child = node[key];
        if (typeof child !== "object" || child === null || NO_NODES.has(key)) continue;
        if (Array.isArray(child) || typeof child.type === "string") stack.push(child);
      }
    }
    return this.result();
  }

  // Returns whether to go on with the node's children.
  visit(node) {
    if (UNSUPPORTED[node.type] !== undefined) this.unsupported(node, UNSUPPORTED[node.type]);
    if (node.declare === true && node.type !== "ClassProperty") return this.eraseStatement(node), false;
    if (ERASED.has(node.type)) {
      if (node.type === "TSTypeAnnotation" || node.type.startsWith("TSTypeParameter")) this.blank(node.start, node.end);
      else this.eraseStatement(node);
      return false;
    }
    const method = this[node.type];
    return method === undefined ? true : method.call(this, node) !== false;
  }

  // ---- Statements

  ImportDeclaration(node) {
    if (node.importKind === "type") return this.eraseStatement(node), false;
    return this.specifiers(node.specifiers.filter((one) => one.importKind === "type"));
  }

  ExportNamedDeclaration(node) {
    const erased = node.declaration !== null && node.declaration !== undefined && this.isErased(node.declaration);
    if (node.exportKind === "type" || erased) return this.eraseStatement(node), false;
    if (!this.exports) {
      if (!node.declaration) return this.eraseStatement(node), false;
      this.blank(node.start, node.declaration.start);
    }
    return this.specifiers(node.specifiers.filter((one) => one.exportKind === "type"));
  }

  ExportAllDeclaration(node) {
    if (node.exportKind === "type" || !this.exports) return this.eraseStatement(node), false;
    return true;
  }

  ExportDefaultDeclaration(node) {
    if (this.isErased(node.declaration)) return this.eraseStatement(node), false;
    if (this.exports) return true;
    const isNamed = /^(?:Function|Class)Declaration$/.test(node.declaration.type) && node.declaration.id;
    if (isNamed) {
      this.blank(node.start, node.declaration.start);
    } else { // a value, which must not be taken for a block or a declaration
      this.replace(node.start, node.declaration.start, "(");
      this.blanks.push([node.declaration.end, node.declaration.end, ")"]);
    }
    return true;
  }

  isErased(node) {
    return node.declare === true || ERASED.has(node.type) || (node.type === "TSModuleDeclaration" && !this.hasValues(node));
  }

  // `{ a, type B, c }`: the type and the comma behind it.
  specifiers(list) {
    for (const one of list) {
      const comma = /^(?:\s|\/\/[^\n]*\n|\/\*[\s\S]*?\*\/)*,/.exec(this.source.slice(one.end, one.end + 10000));
      this.blank(one.start, one.end + (comma === null ? 0 : comma[0].length));
    }
    return true;
  }

  // `namespace N { export const a = 1; }` fills an object with what it exports. Variables that may change are looked up there.
  TSModuleDeclaration(node) {
    if (!this.hasValues(node)) return this.eraseStatement(node), false;
    if (node.id.type !== "Identifier" || node.body.type !== "TSModuleBlock") this.unsupported(node, "a namespace within another by a dotted name is");
    const { name } = node.id;
    this.replace(node.start, node.body.start + 1, `var ${name}; (function (${name}) {`);
    this.replace(node.body.end - 1, node.body.end, `})(${name} || (${name} = {}));`);
    node.body.body = node.body.body.map((statement) => {
      const { declaration } = statement;
      if (statement.type !== "ExportNamedDeclaration" || !declaration || this.isErased(declaration)) return statement;
      this.blank(statement.start, declaration.start);
      const mayChange = declaration.type === "VariableDeclaration" && declaration.kind !== "const";
      const names = declaration.type === "VariableDeclaration" ? declaration.declarations.flatMap(({ id }) => namesIn(id)) : [declaration.id.name];
      const given = names.map((each) => (mayChange
        ? `Object.defineProperty(${name}, "${each}", { get: () => ${each}, set: ($) => void (${each} = $), enumerable: true, configurable: true });`
        : `${name}.${each} = ${each};`));
      this.blanks.push([statement.end, statement.end, ` ; ${given.join(" ")}`]);
      return declaration;
    });
    return true;
  }

  // `enum E { A, B = 2, C = "c" }` fills an object. Members are constants within it, as later members may name them; one
  // that has no value follows the one before.
  TSEnumDeclaration(node) {
    const { name } = node.id;
    const members = node.members ?? node.body.members;
    const open = this.source.indexOf("{", node.id.end) + 1;
    this.replace(node.start, open, `var ${name}; (function (${name}) {`);
    let at = open;
    let previous;
    members.forEach((member, i) => {
      const key = member.id.type === "Identifier" ? member.id.name : member.id.value;
      const constant = member.id.type === "Identifier" && !RESERVED.test(key) ? key : `$member${i}`;
      const text = `${name}[${JSON.stringify(key)}] = ${constant}; if (typeof ${constant} === "number") ${name}[${constant}] = ${JSON.stringify(key)};`;
      if (member.initializer) {
        this.replace(at, member.initializer.start, ` const ${constant} = `);
        this.replace(member.initializer.end, (at = member.end), `; ${text}`);
      } else {
        this.replace(at, (at = member.end), ` const ${constant} = ${previous === undefined ? 0 : `${previous} + 1`}; ${text}`);
      }
      previous = constant;
    });
    this.replace(at, node.end, ` })(${name} || (${name} = {}));`);
    return true;
  }

  // Does a namespace hold anything that is there when the program runs?
  hasValues(node) {
    const stack = [node];
    while (stack.length > 0) {
      const one = stack.pop();
      if (one.declare === true || ERASED.has(one.type)) continue;
      if (one.type === "TSModuleDeclaration") stack.push(one.body);
      else if (one.type === "TSModuleBlock") stack.push(...one.body);
      else if (one.type === "ExportNamedDeclaration" && one.declaration) stack.push(one.declaration);
      else if (one.type === "ExportNamedDeclaration" && one.exportKind === "type") continue;
      else return true;
    }
    return false;
  }

  // ---- Expressions

  TSAsExpression(node) {
    this.blank(node.expression.end, node.end);
  }

  // `<T>value`; what could be taken for a block is put in parentheses.
  TSTypeAssertion(node) {
    const { expression } = node;
    if (!["ObjectExpression", "FunctionExpression", "ClassExpression"].includes(expression.type)) return this.blank(node.start, expression.start);
    this.replace(node.start, expression.start, "(");
    this.blanks.push([node.end, node.end, ")"]);
  }

  TSSatisfiesExpression(node) {
    this.TSAsExpression(node);
  }

  TSNonNullExpression(node) {
    this.blank(node.end - 1, node.end);
  }

  ArrowFunctionExpression(node) {
    this.parameters(node);
    // The line may not end between the parameters and the arrow.
    const type = node.returnType;
    if (type && this.source.slice(type.start, type.end).includes("\n")) {
      const open = this.source.lastIndexOf(")", type.start);
      this.blank(open, open + 1);
      this.marks.push([type.end - 1, ")"]);
    }
    if (node.async && node.typeParameters && this.source.slice(node.typeParameters.start, node.typeParameters.end).includes("\n")) {
      this.unsupported(node.typeParameters, "type parameters of an async arrow function that span lines are");
    }
  }

  FunctionDeclaration(node) {
    this.parameters(node);
  }

  FunctionExpression(node) {
    this.parameters(node);
  }

  ObjectMethod(node) {
    this.parameters(node);
  }

  // A parameter named `this` is no parameter.
  parameters(node) {
    const first = node.params[0];
    if (first?.type === "Identifier" && first.name === "this") {
      const end = node.params[1]?.start ?? first.end;
      const comma = node.params[1] === undefined ? this.find(",", first.end, this.find(")", first.end, this.source.length)) : -1;
      this.blank(first.start, comma >= 0 ? comma + 1 : end);
    }
    for (const one of node.params) {
      const parameter = one.type === "TSParameterProperty" ? one.parameter : one;
      if (parameter.optional) this.optional(parameter);
    }
    const properties = node.params.filter((one) => one.type === "TSParameterProperty");
    if (properties.length > 0) this.parameterProperties(properties, node.body);
  }

  // `constructor(private a, readonly b = 1) {` assigns them first, or behind `super(...)`.
  parameterProperties(properties, body) {
    const names = properties.map(({ parameter }) => (parameter.left ?? parameter).name);
    for (const one of properties) this.blank(one.start, one.parameter.start);
    const isSuper = ({ type, expression }) => type === "ExpressionStatement" && expression.callee?.type === "Super";
    const at = body.body.find(isSuper)?.end ?? body.directives?.at(-1)?.end ?? body.start + 1;
    this.blanks.push([at, at, `; ${names.map((name) => `this.${name} = ${name};`).join(" ")}`]);
  }

  optional(node) {
    const end = node.typeAnnotation?.start ?? node.end;
    const from = node.type === "Identifier" ? node.start + node.name.length : node.start;
    if (node.type === "Identifier") this.blankToken("?", from, end);
    else this.blank(this.source.lastIndexOf("?", end - 1), this.source.lastIndexOf("?", end - 1) + 1);
  }

  VariableDeclarator(node) {
    if (node.definite) this.blankToken("!", node.id.start + node.id.name.length, node.id.typeAnnotation?.start ?? node.id.end);
  }

  // ---- Classes

  // What a constructor's parameters declare comes before all other fields.
  ClassBody(node) {
    const constructor = node.body.find(({ type, kind, body }) => type === "ClassMethod" && kind === "constructor" && body);
    const properties = constructor?.params.filter(({ type }) => type === "TSParameterProperty") ?? [];
    const names = properties.map(({ parameter }) => (parameter.left ?? parameter).name);
    if (names.length > 0) this.blanks.push([node.start + 1, node.start + 1, names.map((name) => ` ${name};`).join("")]);
    return true;
  }

  ClassDeclaration(node) {
    if (node.abstract) this.blankToken("abstract", node.start, node.body.start);
    return this.heritage(node);
  }

  ClassExpression(node) {
    return this.heritage(node);
  }

  heritage(node) {
    if (node.implements?.length > 0) {
      const from = node.superTypeParameters?.end ?? node.superTypeArguments?.end ?? node.superClass?.end ?? node.typeParameters?.end ?? node.id?.end ?? node.start + 5;
      this.blank(this.find("implements", from, node.body.start), node.implements.at(-1).end);
      node.implements = [];
    }
    return true;
  }

  ClassMethod(node) {
    this.modifiers(node, node.key.start);
    if (node.optional) this.blankToken("?", node.key.end, node.typeParameters?.start ?? this.find("(", node.key.end, node.end));
    this.parameters(node);
  }

  ClassPrivateMethod(node) {
    this.modifiers(node, node.key.start);
    this.parameters(node);
  }

  ClassProperty(node) {
    if (node.abstract || node.declare) return this.eraseStatement(node), false;
    this.modifiers(node, node.key.start);
    const end = node.typeAnnotation?.start ?? node.value?.start ?? node.end;
    if (node.optional) this.blankToken("?", node.key.end, end);
    if (node.definite) this.blankToken("!", node.key.end, end);
    return true;
  }

  ClassPrivateProperty(node) {
    return this.ClassProperty(node);
  }

  ClassAccessorProperty(node) {
    this.unsupported(node, "accessor properties are");
  }

  // ---- JSX

  factory() {
    return (this.jsx ??= factoryOf(this.source, this.program));
  }

  // ---- The result

  result() {
    const { source } = this;
    const marks = new Map(this.marks);
    const pieces = [];
    let at = 0;
    for (const [start, end, text] of this.blanks.sort(([a], [b]) => a - b)) {
      if (text !== undefined && start >= at) {
        pieces.push(source.slice(at, start), text);
        at = end;
        continue;
      }
      if (end <= at) continue;
      const from = Math.max(start, at);
      pieces.push(source.slice(at, from));
      // A mark is at the first or the last character of what is blank.
      const first = marks.get(from) ?? blankOf(source[from]);
      const last = end - 1 > from ? marks.get(end - 1) ?? blankOf(source[end - 1]) : "";
      pieces.push(first, source.slice(from + 1, end - 1).replace(/[^\n\r\u2028\u2029]/g, blankOf), last);
      at = end;
    }
    pieces.push(source.slice(at));
    return pieces.join("");
  }
}

Object.assign(Stripper.prototype, JSX);

// Names that no constant can have.
const RESERVED = /^(?:arguments|await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|eval|export|extends|false|finally|for|function|if|implements|import|in|instanceof|interface|let|new|null|package|private|protected|public|return|static|super|switch|this|throw|true|try|typeof|var|void|while|with|yield)$/;

// As many bytes of UTF-8 as what stands there, since the engine counts columns in them; and the line ends.
function blankOf(character) {
  const code = character.charCodeAt(0);
  if (code === 10 || code === 13 || code === 0x2028 || code === 0x2029) return character;
  return code < 0x80 ? " " : code < 0x800 || (code >= 0xd800 && code < 0xe000) ? "\u00a0" : "\u3000";
}

const OPTIONS = {
  sourceType: "unambiguous", plugins: ["typescript", "decorators"], attachComment: false,
  // CommonJS may return, and modules await.
  allowReturnOutsideFunction: true, allowAwaitOutsideFunction: true, allowUndeclaredExports: true, createParenthesizedExpressions: true,
};

function parsed(source, jsx) {
  const plugins = jsx ? [...OPTIONS.plugins, "jsx"] : OPTIONS.plugins;
  try {
    return { tree: parse(source, { ...OPTIONS, plugins }) };
  } catch (error) {
    if (error.loc === undefined) throw error;
    return { error };
  }
}

// JavaScript of a source of TypeScript, JSX or both, without its exports when these mean nothing. Throws a SyntaxError whose
// stack names the place. A cell, which has no ending, has JSX when it cannot be read without.
export function strip(source, file, { exports = true } = {}) {
  const isCell = !exports;
  let { tree, error } = parsed(source, !isCell && /\.[jt]sx$/.test(file));
  if (tree === undefined && isCell && /<[\p{ID_Start}$_>]/u.test(source)) {
    const other = parsed(source, true);
    tree = other.tree;
    // What has an end tag is no comparison.
    if (other.error !== undefined && (other.error.pos > error.pos || /<\/[\w$.:-]*>|\/>/.test(source))) error = other.error;
  }
  if (tree === undefined) {
    const clean = new SyntaxError(error.message.replace(/ \(\d+:\d+\)$/, ""));
    clean.stack = `SyntaxError: ${clean.message}\n    at ${file}:${error.loc.line}:${error.loc.column + 1}`;
    throw clean;
  }
  return new Stripper(source, file, exports).strip(tree.program);
}
