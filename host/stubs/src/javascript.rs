//! Stubs of JavaScript: a `.d.ts`, and signatures in a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;

use crate::{
    Function, Group,
    schema::{Field, Shape, Type},
    tree::{self, Node},
    words,
};

/// Objects and references within one another that a line follows.
const LINE_DEPTH: usize = 4;

/// Returns a `.d.ts` with these functions.
pub(crate) fn file(functions: &[&Function]) -> String {
    let mut names = BTreeSet::new();
    let mut file = String::new();
    for (name, node) in tree::of(functions) {
        let (mut types, mut body) = (String::new(), String::new());
        members(&node, 1, &mut types, &mut names, &mut body);
        let _ = write!(file, "{types}declare const {}: {{\n{body}}};\n", words::method(name));
    }
    file
}

fn members(node: &Node<'_>, depth: usize, types: &mut String, names: &mut BTreeSet<String>, body: &mut String) {
    let indent = "  ".repeat(depth);
    if let Some(function) = node.call {
        method("", function, &indent, types, names, body);
    }
    for (name, inner) in &node.inner {
        let _ = writeln!(body, "{indent}{}: {{", property(name));
        members(inner, depth.saturating_add(1), types, names, body);
        let _ = writeln!(body, "{indent}}};");
    }
    for (name, function) in &node.functions {
        method(&property(name), function, &indent, types, names, body);
    }
}

fn method(
    name: &str,
    function: &Function,
    indent: &str,
    types: &mut String,
    names: &mut BTreeSet<String>,
    body: &mut String,
) {
    let said = function.about();
    if !said.is_empty() {
        let _ = writeln!(body, "{indent}/** {} */", words::in_comment(&said));
    }
    let (shape, result) = (function.shape(), Shape::of(function.result.as_deref()));
    let of = words::pascal(&function.name);
    let arguments = Types::new(&shape, &of, types, names).arguments(function);
    let answer = Types::new(&result, &of, types, names).answer(function);
    let _ = writeln!(body, "{indent}{name}({arguments}): Promise<{answer}>;");
}

/// Returns the call of a function in one line.
pub(crate) fn line(function: &Function) -> String {
    let (shape, result) = (function.shape(), Shape::of(function.result.as_deref()));
    let (mut types, mut names) = (String::new(), BTreeSet::new());
    let arguments = Types { inline: true, ..Types::new(&shape, "", &mut types, &mut names) }.arguments(function);
    let answer = Types { inline: true, ..Types::new(&result, "", &mut types, &mut names) }.answer(function);
    format!("{}({arguments}): Promise<{answer}>", function.path())
}

/// The name of a member.
fn property(name: &str) -> String {
    // Members of these names are something else.
    let is_word = ["new", "get", "set", "constructor", "readonly"].contains(&name);
    if words::is_identifier(name) && !is_word { name.to_owned() } else { words::quoted(name) }
}

/// Types of one schema, on their way into a file or a line.
struct Types<'a> {
    shape: &'a Shape,
    /// The name that theirs begin with.
    of: &'a str,
    types: &'a mut String,
    names: &'a mut BTreeSet<String>,
    /// Names of the types that have been written, by their numbers.
    written: BTreeMap<usize, String>,
    /// True for types without names of their own and without comments.
    inline: bool,
}

impl<'a> Types<'a> {
    fn new(shape: &'a Shape, of: &'a str, types: &'a mut String, names: &'a mut BTreeSet<String>) -> Types<'a> {
        Types { shape, of, types, names, written: BTreeMap::new(), inline: false }
    }

    fn arguments(mut self, function: &Function) -> String {
        let shape = self.shape;
        let is_needed = shape.fields().is_some_and(|fields| fields.iter().any(|field| field.is_required));
        let mut text = match shape.fields() {
            Some([]) => String::new(),
            Some(_) => format!("args{}: {}", if is_needed { "" } else { "?" }, self.print(&shape.root, 0)),
            None if shape.root == Type::Any => "args?: { [name: string]: any }".to_owned(),
            None => format!(
                "args{}: {}",
                if matches!(shape.root, Type::Map(_)) { "?" } else { "" },
                self.print(&shape.root, 0)
            ),
        };
        if matches!(function.group, Group::Connector(_)) {
            let gap = if text.is_empty() { "args?: {}, " } else { ", " };
            text = format!("{text}{gap}options?: {{ refresh?: boolean }}");
        }
        text
    }

    fn answer(mut self, function: &Function) -> String {
        if matches!(function.group, Group::Connector(_)) {
            return "{ [column: string]: any }[]".to_owned();
        }
        let shape = self.shape;
        self.print(&shape.root, 0)
    }

    fn print(&mut self, of: &Type, depth: usize) -> String {
        let inner = depth.saturating_add(1);
        match of {
            Type::Any => "any".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Boolean => "boolean".to_owned(),
            Type::Integer | Type::Number => "number".to_owned(),
            Type::Text => "string".to_owned(),
            Type::Literal(values) => values.iter().map(written).collect::<Vec<_>>().join(" | "),
            Type::List(item) => match (&**item, self.print(item, depth)) {
                (Type::Union(_) | Type::Literal(_), printed) => format!("({printed})[]"),
                (_, printed) => format!("{printed}[]"),
            },
            Type::Tuple(items) => {
                format!("[{}]", items.iter().map(|item| self.print(item, depth)).collect::<Vec<_>>().join(", "))
            }
            Type::Map(value) => format!("{{ [key: string]: {} }}", self.print(value, depth)),
            Type::Object(fields) if fields.is_empty() => "{}".to_owned(),
            Type::Object(_) if self.inline && depth >= LINE_DEPTH => "object".to_owned(),
            Type::Object(fields) => {
                let fields: Vec<String> = fields.iter().map(|field| self.field(field, inner)).collect();
                format!("{{ {} }}", fields.join("; "))
            }
            Type::Union(members) => {
                let mut printed: Vec<String> = members.iter().map(|member| self.print(member, depth)).collect();
                printed.dedup();
                printed.join(" | ")
            }
            Type::Named(at) => self.named(*at, depth),
        }
    }

    fn field(&mut self, field: &Field, depth: usize) -> String {
        let optional = if field.is_required { "" } else { "?" };
        let about = if self.inline || field.about.is_empty() {
            String::new()
        } else {
            format!("/** {} */ ", words::in_comment(&field.about))
        };
        format!("{about}{}{optional}: {}", property(&field.name), self.print(&field.of, depth))
    }

    fn named(&mut self, at: usize, depth: usize) -> String {
        let shape = self.shape;
        let Some((part, of)) = shape.named.get(at) else { return "any".to_owned() };
        if self.inline {
            return if depth < LINE_DEPTH { self.print(of, depth.saturating_add(1)) } else { "any".to_owned() };
        }
        if let Some(name) = self.written.get(&at) {
            return name.clone();
        }
        let base = format!("{}_{}", self.of, words::pascal(part));
        let (mut name, mut number) = (base.clone(), 2_u32);
        while !self.names.insert(name.clone()) {
            name = format!("{base}{number}");
            number = number.saturating_add(1);
        }
        self.written.insert(at, name.clone());
        let printed = self.print(of, 0);
        let _ = writeln!(self.types, "type {name} = {printed};");
        name
    }
}

/// A plain value as JavaScript writes it.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => words::quoted(text),
        value => value.to_string(),
    }
}
