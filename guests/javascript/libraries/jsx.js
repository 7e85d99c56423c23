// JSX to calls, as esbuild makes them unless told otherwise: `<a b={1}>c</a>` is `React.createElement("a", { "b": 1 }, "c")`.
//
// Everything stays on its line. `/** @jsx h */` and `/** @jsxFrag Fragment */` name other functions than React's.

const MISSING = "React is not defined: JSX becomes calls of React.createElement. Write `import React from \\\"react\\\"`, which the owner of the "
  + "host adds with `cellar packages add npm:react` and grants with packages = [\\\"npm:react\\\"], or name another function: `/** @jsx h */`";

// Is a name bound at the top level of a program?
function isBound(name, program) {
  return program.body.some((statement) => {
    const declared = statement.declaration ?? statement;
    if (declared.type === "VariableDeclaration") return declared.declarations.some(({ id }) => id.name === name);
    if (declared.type === "ImportDeclaration") return declared.specifiers.some(({ local }) => local.name === name);
    return declared.id?.name === name;
  });
}

// The functions that elements and fragments of a program call.
export function factoryOf(source, program) {
  const named = (word) => new RegExp(`^\\s*(?:/\\*|//|\\*)[\\s*]*@${word}\\s+([\\w$.]+)`, "m").exec(source)?.[1];
  const element = named("jsx");
  const react = isBound("React", program) ? "React" : `(typeof React === "undefined" ? (() => { throw new ReferenceError("${MISSING}") })() : React)`;
  return {
    element: element ?? `${react}.createElement`,
    fragment: named("jsxFrag") ?? (element === undefined ? "React.Fragment" : "Fragment"),
  };
}

// Text between tags: the blanks at the ends of lines go with the lines' ends.
function textOf(value) {
  const lines = value.split(/\r\n|\n|\r/);
  return lines.map((line, i) => {
    const begun = i === 0 ? line : line.replace(/^[ \t]+/, "");
    return i === lines.length - 1 ? begun : begun.replace(/[ \t]+$/, "");
  }).filter((line) => line !== "").join(" ");
}

// A string as one line of JavaScript.
const quoted = (text) => JSON.stringify(text).replace(/\u2028/g, "\\u2028").replace(/\u2029/g, "\\u2029");

// Methods of the walk, by the types of nodes.
export const JSX = {
  JSXElement(node) {
    const { openingElement: opening, closingElement: closing } = node;
    const type = opening.typeArguments ?? opening.typeParameters;
    const has = opening.attributes.length > 0;
    const head = `${node.before ?? ""}${this.factory().element}(${this.nameOf(opening.name)}, ${has ? "{" : "null"}`;
    let at = (type ?? opening.name).end;
    this.replace(node.start, at, head);
    opening.attributes.forEach((attribute, i) => (at = this.attribute(attribute, at, i === 0 ? " " : ", ")));
    const end = `${has ? " }" : ""}${closing === null ? ")" : ""}`;
    this.replace(at, opening.end, end);
    if (closing !== null) this.inner(node.children, closing);
    this.stack.push(opening.attributes.flatMap((one) => one.argument ?? one.value ?? []), node.children);
    return false;
  },

  JSXFragment(node) {
    const { element, fragment } = this.factory();
    this.replace(node.start, node.openingFragment.end, `${node.before ?? ""}${element}(${fragment}, null`);
    this.inner(node.children, node.closingFragment);
    this.stack.push(node.children);
    return false;
  },

  // Puts an attribute where it stands; returns where it ends.
  attribute(node, from, before) {
    if (node.type === "JSXSpreadAttribute") {
      this.replace(from, node.argument.start, `${before}...(`);
      this.replace(node.argument.end, node.end, ")");
      return node.end;
    }
    const name = node.name.type === "JSXNamespacedName" ? `${node.name.namespace.name}:${node.name.name.name}` : node.name.name;
    const key = `${before}${name === "__proto__" ? "[\"__proto__\"]" : quoted(name)}: `;
    const { value } = node;
    if (value === null || value === undefined) this.replace(from, node.end, `${key}true`);
    else if (value.type === "StringLiteral") this.replace(from, node.end, key + quoted(value.value));
    else if (value.type === "JSXExpressionContainer") {
      this.replace(from, value.expression.start, `${key}(`);
      this.replace(value.expression.end, node.end, ")");
    } else {
      this.replace(from, value.start, "");
      value.before = key;
    }
    return node.end;
  },

  // Children, and the end of the call.
  inner(children, closing) {
    for (const child of children) {
      if (child.type === "JSXText") {
        const text = textOf(child.value);
        this.replace(child.start, child.end, text === "" ? "" : `, ${quoted(text)}`);
      } else if (child.type === "JSXExpressionContainer" && child.expression.type === "JSXEmptyExpression") {
        this.replace(child.start, child.end, "");
      } else if (child.type === "JSXExpressionContainer" || child.type === "JSXSpreadChild") {
        this.replace(child.start, child.expression.start, child.type === "JSXSpreadChild" ? ", ...(" : ", (");
        this.replace(child.expression.end, child.end, ")");
      } else {
        child.before = ", ";
      }
    }
    this.replace(closing.start, closing.end, ")");
  },

  nameOf(node) {
    if (node.type === "JSXMemberExpression") return `${this.nameOf(node.object)}.${node.property.name}`;
    if (node.type === "JSXNamespacedName") return quoted(`${node.namespace.name}:${node.name.name}`);
    const { name } = node;
    return name === "this" || !/^[a-z]|-/.test(name) ? name : quoted(name);
  },
};
