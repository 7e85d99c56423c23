// Functions of the program as tools of cells.

/** What cells are told of tools, and the functions that answer them. */
export async function toolsOf(given) {
  const described = [];
  const tools = new Map();
  for (const [name, tool] of Object.entries(given)) {
    const { description = "", execute } = typeof tool === "function" ? { execute: tool } : tool;
    if (typeof execute !== "function") throw new TypeError(`tool \`${name}\`: \`execute\` is no function`);
    const parameters = tool.parameters ?? tool.inputSchema;
    described.push({ name, description, schema: await schemaOf(name, parameters) });
    const validate = parameters?.["~standard"]?.validate;
    tools.set(name, async (args, cancellation) => {
      const checked = validate === undefined ? args : await valid(validate, args);
      return await execute.call(tool, checked, cancellation);
    });
  }
  return { described, tools };
}

/** The JSON Schema of parameters: itself, or what a library of schemas makes of its own. */
async function schemaOf(name, parameters) {
  if (parameters === undefined) return { type: "object" };
  const standard = parameters["~standard"];
  if (standard?.jsonSchema !== undefined) return standard.jsonSchema.input({ target: "draft-2020-12" });
  if (typeof parameters.toJSONSchema === "function") return parameters.toJSONSchema({ io: "input" });
  if (typeof parameters.toJsonSchema === "function") return parameters.toJsonSchema();
  if (standard !== undefined) {
    throw new TypeError(`tool \`${name}\`: its parameters cannot say their JSON Schema, which cells need; give that instead`);
  }
  return (await parameters.jsonSchema) ?? parameters;
}

/** Arguments as a schema makes them: with defaults, and other types than JSON has. */
async function valid(validate, args) {
  const { issues, value } = await validate(args);
  if (issues === undefined) return value;
  const said = issues.map(({ message, path }) => {
    const place = (path ?? []).map((part) => `/${String(typeof part === "object" ? part.key : part)}`).join("");
    return place === "" ? message : `\`${place}\`: ${message}`;
  });
  throw new TypeError(said.join("; "));
}

/** Makes a tool whose function has the types of its schema; the tool is what was given. */
export function tool(definition) {
  return definition;
}
