//! Stubs of Python: a `.pyi`, and signatures in a line.

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
const LINE_DEPTH: usize = 3;

/// Returns a `.pyi` with these functions.
pub(crate) fn file(functions: &[&Function]) -> String {
    let mut file = File::default();
    for (name, node) in tree::of(functions) {
        let class = file.class(&words::pascal(name), name, &node);
        let _ = writeln!(file.text, "{}: {class}", words::method(name));
    }
    if file.imports.is_empty() {
        return file.text;
    }
    let imports: Vec<&str> = file.imports.into_iter().collect();
    format!("from typing import {}\n\n{}", imports.join(", "), file.text)
}

/// Returns the call of a function in one line.
pub(crate) fn line(function: &Function) -> String {
    let shape = function.shape();
    let print = |of: &Type, shape: &Shape| inline(of, shape, 0);
    let arguments = match arguments(&shape) {
        Arguments::Named(fields) => {
            let mut parts: Vec<String> =
                fields.iter().map(|field| parameter(field, &print(&field.of, &shape))).collect();
            parts.extend(refresh(function));
            star(parts)
        }
        Arguments::One => print(&shape.root, &shape),
        Arguments::Any => "**arguments".to_owned(),
    };
    let result = Shape::of(function.result.as_deref());
    format!("{}({arguments}) -> {}", function.path(), print(&result.root, &result))
}

/// Form in which a function takes its arguments.
enum Arguments<'a> {
    /// By their names.
    Named(&'a [Field]),
    /// As one object, because their names are no parameters, or because they are said in another way.
    One,
    /// Nothing is known of them.
    Any,
}

fn arguments(shape: &Shape) -> Arguments<'_> {
    match (shape.fields(), &shape.root) {
        (Some(fields), _) if fields.iter().all(|field| words::is_python_name(&field.name)) => Arguments::Named(fields),
        (None, Type::Any) => Arguments::Any,
        (None, Type::Map(of)) if **of == Type::Any => Arguments::Any,
        _ => Arguments::One,
    }
}

fn star(parts: Vec<String>) -> String {
    if parts.is_empty() { String::new() } else { format!("*, {}", parts.join(", ")) }
}

/// The argument of fetches that asks the source again.
fn refresh(function: &Function) -> Option<String> {
    matches!(function.group, Group::Connector(_)).then(|| "refresh: bool = False".to_owned())
}

fn parameter(field: &Field, of: &str) -> String {
    if field.is_required {
        return format!("{}: {of}", field.name);
    }
    let default = field.default.as_ref().filter(|value| fits(value, &field.of)).map_or("...".to_owned(), written);
    format!("{}: {of} = {default}", field.name)
}

/// Returns true if a default is of a type.
fn fits(value: &Value, of: &Type) -> bool {
    match of {
        Type::Any => true,
        Type::Null => value.is_null(),
        Type::Boolean => value.is_boolean(),
        Type::Integer => value.is_i64() || value.is_u64(),
        Type::Number => value.is_number(),
        Type::Text => value.is_string(),
        Type::Literal(values) => values.contains(value),
        Type::Union(members) => members.iter().any(|member| fits(value, member)),
        _ => false,
    }
}

/// A plain value as Python writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => words::quoted(text),
        value => value.to_string(),
    }
}

fn literal(values: &[Value]) -> String {
    let values: Vec<String> = values.iter().map(written).collect();
    format!("Literal[{}]", values.join(", "))
}

/// Returns a type without names of its own: objects as `{name: str, age?: int}`.
fn inline(of: &Type, shape: &Shape, depth: usize) -> String {
    let inner = |of: &Type| inline(of, shape, depth.saturating_add(1));
    match of {
        Type::Object(fields) if depth < LINE_DEPTH && !fields.is_empty() => {
            let optional = |field: &Field| if field.is_required { "" } else { "?" };
            let name = |field: &Field| {
                if words::is_identifier(&field.name) { field.name.clone() } else { words::quoted(&field.name) }
            };
            let one = |field: &Field| format!("{}{}: {}", name(field), optional(field), inner(&field.of));
            format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        Type::Object(_) => "dict".to_owned(),
        Type::Named(at) => match shape.named.get(*at) {
            Some((_, of)) if depth < LINE_DEPTH => inner(of),
            _ => "Any".to_owned(),
        },
        of => around(of, &mut |of| inline(of, shape, depth)),
    }
}

/// Returns a type around others, which `print` writes.
fn around(of: &Type, print: &mut dyn FnMut(&Type) -> String) -> String {
    match of {
        Type::Any | Type::Object(_) | Type::Named(_) => "Any".to_owned(),
        Type::Null => "None".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Integer => "int".to_owned(),
        Type::Number => "float".to_owned(),
        Type::Text => "str".to_owned(),
        Type::Literal(values) => literal(values),
        Type::List(item) => format!("list[{}]", print(item)),
        Type::Tuple(items) => format!("tuple[{}]", items.iter().map(print).collect::<Vec<_>>().join(", ")),
        Type::Map(value) => format!("dict[str, {}]", print(value)),
        Type::Union(members) => members.iter().map(print).collect::<Vec<_>>().join(" | "),
    }
}

/// A file that is being written.
#[derive(Default)]
struct File {
    text: String,
    imports: BTreeSet<&'static str>,
    names: BTreeSet<String>,
}

/// Types of one schema, on their way into a file.
struct Types<'a> {
    file: &'a mut File,
    shape: &'a Shape,
    /// The name that theirs begin with.
    of: String,
    /// Names of the types that have been written, by their numbers.
    written: BTreeMap<usize, String>,
}

impl File {
    /// A name that nothing else has.
    fn unique(&mut self, name: String) -> String {
        let mut number = 2_u32;
        let mut unique = name.clone();
        while !self.names.insert(unique.clone()) {
            unique = format!("{name}{number}");
            number = number.saturating_add(1);
        }
        unique
    }

    /// Writes the class of a name with what lies below it, and returns what the class is called.
    fn class(&mut self, class: &str, path: &str, node: &Node<'_>) -> String {
        let class = self.unique(class.to_owned());
        let mut body = String::new();
        let mut methods = BTreeSet::new();
        for (name, inner) in &node.inner {
            let path = words::member(path, name);
            let of = self.class(&format!("{class}_{}", words::pascal(name)), &path, inner);
            self.comment_on(&mut body, name, &path);
            let _ = writeln!(body, "    {}: {of}", own(&mut methods, name));
        }
        for (name, function) in &node.functions {
            self.comment_on(&mut body, name, &words::member(path, name));
            let name = own(&mut methods, name);
            self.method(&mut body, &name, function);
        }
        if let Some(function) = node.call {
            self.method(&mut body, "__call__", function);
        }
        let _ = write!(self.text, "class {class}:\n{body}");
        class
    }

    /// Says how a name is reached that no attribute can have.
    fn comment_on(&self, body: &mut String, name: &str, path: &str) {
        if !words::is_python_name(name) {
            let _ = writeln!(body, "    # {path}");
        }
    }

    fn method(&mut self, body: &mut String, name: &str, function: &Function) {
        let shape = function.shape();
        let of = words::pascal(&function.name);
        let mut types = Types { file: self, shape: &shape, of: of.clone(), written: BTreeMap::new() };
        let mut about: Vec<String> = Vec::new();
        let arguments = match arguments(&shape) {
            Arguments::Named(fields) => {
                let mut parts = Vec::new();
                for field in fields {
                    let printed = types.print(&field.of, &field.name);
                    parts.push(parameter(field, &printed));
                    if !field.about.is_empty() {
                        about.push(format!("{}: {}", field.name, field.about));
                    }
                }
                parts.extend(refresh(function));
                star(parts)
            }
            Arguments::One => format!("arguments: {}, /", types.print(&shape.root, "Arguments")),
            Arguments::Any => format!("**arguments: {}", types.print(&Type::Any, "")),
        };
        let result = Shape::of(function.result.as_deref());
        let mut types = Types { file: self, shape: &result, of, written: BTreeMap::new() };
        let result = types.print(&result.root, "Result");
        let gap = if arguments.is_empty() { "" } else { ", " };
        let _ = write!(body, "    def {name}(self{gap}{arguments}) -> {result}:");
        let said = function.about();
        match (said.is_empty(), about.is_empty()) {
            (true, true) => body.push_str(" ...\n"),
            (false, true) => {
                let _ = writeln!(body, "\n        \"\"\"{}\"\"\"", words::in_docstring(&said));
            }
            (_, false) => {
                let lines: Vec<String> =
                    about.iter().map(|one| format!("        {}\n", words::in_docstring(one))).collect();
                let _ =
                    writeln!(body, "\n        \"\"\"{}\n{}        \"\"\"", words::in_docstring(&said), lines.concat());
            }
        }
    }
}

/// Returns the name of an attribute that no other of its class has.
fn own(taken: &mut BTreeSet<String>, name: &str) -> String {
    let mut made = if words::is_python_name(name) { name.to_owned() } else { words::method(name) };
    while !taken.insert(made.clone()) {
        made.push('_');
    }
    made
}

impl Types<'_> {
    /// Returns a type; objects in it become classes, which have `part` in their names.
    fn print(&mut self, of: &Type, part: &str) -> String {
        match of {
            Type::Object(fields) if !fields.is_empty() => self.object(fields, part),
            Type::Object(_) => self.print(&Type::Map(Box::new(Type::Any)), part),
            Type::Named(at) => self.named(*at),
            Type::Any => {
                self.file.imports.insert("Any");
                "Any".to_owned()
            }
            of => {
                if matches!(of, Type::Literal(_)) {
                    self.file.imports.insert("Literal");
                }
                around(of, &mut |of| self.print(of, part))
            }
        }
    }

    fn class_name(&mut self, part: &str) -> String {
        self.file.unique(format!("{}_{}", self.of, words::pascal(part)))
    }

    fn named(&mut self, at: usize) -> String {
        if let Some(name) = self.written.get(&at) {
            return name.clone();
        }
        let shape = self.shape;
        let Some((part, of)) = shape.named.get(at) else { return self.print(&Type::Any, "") };
        let name = self.class_name(part);
        self.written.insert(at, name.clone());
        match of {
            Type::Object(fields) if !fields.is_empty() => self.dictionary(&name, fields, part),
            of => {
                let printed = self.print(of, part);
                let _ = writeln!(self.file.text, "{name} = {printed}");
            }
        }
        name
    }

    fn object(&mut self, fields: &[Field], part: &str) -> String {
        let name = self.class_name(part);
        self.dictionary(&name, fields, part);
        name
    }

    fn dictionary(&mut self, name: &str, fields: &[Field], part: &str) {
        self.file.imports.insert("TypedDict");
        let mut members = Vec::new();
        for field in fields {
            let printed = self.print(&field.of, &format!("{part}_{}", field.name));
            let printed = if field.is_required {
                printed
            } else {
                self.file.imports.insert("NotRequired");
                format!("NotRequired[{printed}]")
            };
            members.push((field, printed));
        }
        let text = &mut self.file.text;
        if fields.iter().all(|field| words::is_python_name(&field.name)) {
            let _ = writeln!(text, "class {name}(TypedDict):");
            for (field, printed) in members {
                let about = if field.about.is_empty() { String::new() } else { format!("  # {}", field.about) };
                let _ = writeln!(text, "    {}: {printed}{about}", field.name);
            }
        } else {
            let members: Vec<String> =
                members.iter().map(|(field, printed)| format!("{}: {printed}", words::quoted(&field.name))).collect();
            let _ = writeln!(text, "{name} = TypedDict(\"{name}\", {{{}}})", members.join(", "));
        }
    }
}
