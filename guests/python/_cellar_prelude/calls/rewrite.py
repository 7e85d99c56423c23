"""Rewrites plain calls of bridges so that they do not hold other cells up.

At the top level of a cell `tool.x(...)` becomes `await aio(tool.x)(...)`; `await tool.x(...)` becomes
`await aio(tool.x)(...)` in async functions too; and in the lambdas given to `parallel` and `pipeline` a call becomes
`yield aio(tool.x)(...)`, with the lambda run as a coroutine. Functions at the top level that make such calls get a second
form in the same way, which `parallel` and `pipeline` use; calls of such functions at the top level, in lambdas and in second
forms wait, too. Whether the name still means a bridge is seen when the call is made. Every new node has the place of the call it stands
for, so that tracebacks stay true.
"""

import ast
import builtins
import copy
import inspect
import re

from _cellar_prelude.calls import connectors, pools

_NAMES = frozenset({"llm", "agent", "parallel", "pipeline", "input"})
# A cell without these words is compiled as it is.
_MENTIONED = re.compile(r"\b(?:tool|llm|agent|parallel|pipeline|input|runtime|tools)\b")
_CONSUMERS = frozenset({"gather", "create_task", "ensure_future", "wait_for", "wait", "as_completed", "shield"})

_CALL = "__cellar_call__"
_AWAIT = "__cellar_await__"
_LAMBDA = "__cellar_lambda__"
_FORM = "__cellar_form__"
_FUNCTION = "__cellar_function__"


def _as_coroutine(function):
    """A function that yields awaitables, as a coroutine function."""

    async def call(*args, **kwargs):
        made = function(*args, **kwargs)
        if not inspect.isgenerator(made):
            return await made if inspect.isawaitable(made) else made
        send, value = made.send, None
        while True:
            try:
                awaitable = send(value)
            except StopIteration as end:
                return end.value
            try:
                send, value = made.send, await awaitable
            except BaseException as error:  # noqa: BLE001 - raised where it was awaited
                send, value = made.throw, error

    return call


# The second form of the function that is defined next.
_forms = []


def _join(function):
    """Gives a function its second form, which was made without defaults."""
    form = _forms.pop()
    form.__defaults__, form.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    pools.set_waiting_form(function, _as_coroutine(form))
    return function


for name, helper in {
    _CALL: pools.awaitable_form,
    _AWAIT: pools.awaited_form,
    _LAMBDA: _as_coroutine,
    _FORM: _forms.append,
    _FUNCTION: _join,
}.items():
    setattr(builtins, name, helper)


# Names of functions with a second form; where there are more than so many, later ones wait in threads.
_names = set()
_NAMES_MAX = 1000
# Finds any of them in a source: a list of one, which stays bound.
_patterns = []


def forget():
    """Forgets the functions of cells."""
    _names.clear()
    _patterns.clear()


def needed(source):
    """Whether a cell may call a bridge, or a function that does."""
    if _MENTIONED.search(source) is not None or connectors.is_mentioned(source):
        return True
    return bool(_patterns) and _patterns[0].search(source) is not None


def _is_bridge(function):
    if isinstance(function, ast.Name):
        return function.id in _NAMES
    root = function
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name) or root is function:
        return False
    if root.id == "runtime":
        # runtime.pack.primitive(...) and runtime["pack.primitive"](...), not runtime.list_primitives()
        if isinstance(function, ast.Subscript):
            return function.value is root
        is_inner = isinstance(function.value, (ast.Attribute, ast.Subscript))
        return is_inner and function.attr not in ("aio", "spec")
    if root.id == "tools":
        return function.value is root and _name_of(function) in ("search", "describe")
    if root.id in connectors.granted():
        # warehouse.orders(...) and warehouse["orders"](...)
        return function.value is root and _name_of(function) not in connectors.MEMBERS
    return root.id == "tool" and function.value is root


def _name_of(function):
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else None


# Between a consumer of awaitables and the call that makes one.
_TRANSPARENT = (
    ast.Starred, ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.Call, ast.Lambda,
)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, known):
        # Names of functions that have a second form.
        self.known = known
        # How the code at hand can wait: "await", "yield" (in a lambda of `parallel`), or None.
        self.way = "await"
        # "gathered" where an awaitable is expected, "thunk" where functions are that may wait, else None.
        self.place = None
        self.changed = False

    def visit(self, node):
        if self.place is None or isinstance(node, _TRANSPARENT):
            return super().visit(node)
        return self._within(node, place=None)

    def _within(self, node, **state):
        """Visits a node, or each of a list, with other state."""
        before = {name: getattr(self, name) for name in state}
        vars(self).update(state)
        try:
            return [self.visit(each) for each in node] if isinstance(node, list) else self.visit(node)
        finally:
            vars(self).update(before)

    def _wrap(self, call, helper):
        self.changed = True
        name = ast.copy_location(ast.Name(helper, ast.Load()), call.func)
        call.func = ast.copy_location(ast.Call(name, [call.func], []), call.func)
        return call

    def visit_Call(self, node):
        bridge = _is_bridge(node.func)
        gathered = self.place == "gathered"
        name = _name_of(node.func)
        inner = None
        if name in ("parallel", "pipeline") and bridge and (gathered or self.way):
            inner = "thunk"
        elif name in _CONSUMERS:
            inner = "gathered"
        node.func = self._within(node.func, place=None)
        node.args = self._within(node.args, place=inner)
        for keyword in node.keywords:
            keyword.value = self._within(keyword.value, place=inner)
        form = self.way is not None and name in self.known and isinstance(node.func, ast.Name)
        if not bridge and not form:
            return node
        if gathered:
            return self._wrap(node, _AWAIT)
        if self.way == "await":
            return ast.copy_location(ast.Await(self._wrap(node, _CALL)), node)
        if self.way == "yield":
            return ast.copy_location(ast.Yield(self._wrap(node, _CALL)), node)
        return node

    def visit_Await(self, node):
        node.value = self._within(node.value, place="gathered" if isinstance(node.value, ast.Call) else None)
        return node

    def visit_Lambda(self, node):
        if self.place != "thunk":
            return self._plain_scope(node)
        before, self.changed = self.changed, False
        node.body = self._within(node.body, way="yield", place=None)
        inside, self.changed = self.changed, self.changed or before
        if not inside:
            return node
        helper = ast.copy_location(ast.Name(_LAMBDA, ast.Load()), node)
        return ast.copy_location(ast.Call(helper, [node], []), node)

    def visit_GeneratorExp(self, node):
        return self._comprehension(node, None)

    def visit_ListComp(self, node):
        return self._comprehension(node, self.way if self.way == "await" else None)

    visit_SetComp = visit_DictComp = visit_ListComp

    def _comprehension(self, node, way):
        """Only the first iterable is evaluated in the scope around it."""
        first = node.generators[0]
        iterable = self._within(first.iter, place=None)
        place = self.place
        first.iter = ast.Constant(None)
        for generator in node.generators:
            self._within(generator, way=way, place=None)
        first.iter = iterable
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self._within(getattr(node, field), way=way, place=place))
        return node

    def _plain_scope(self, node):
        """Plain calls in functions and classes stay as they are; what is awaited is still rewritten."""
        before = self.way, self.place
        self.way = self.place = None
        try:
            return self.generic_visit(node)
        finally:
            self.way, self.place = before

    visit_AsyncFunctionDef = visit_ClassDef = _plain_scope

    def visit_FunctionDef(self, node):
        """A function at the top level gets a second form if it calls bridges."""
        if self.way != "await" or node.decorator_list or _yields(node):
            return self._plain_scope(node)
        form = copy.deepcopy(node)
        before, self.changed = self.changed, False
        form.body = self._within(form.body, way="yield", place=None)
        inside, self.changed = self.changed, self.changed or before
        if not inside:
            return self._plain_scope(node)
        self.known.add(node.name)
        for arguments in (form.args.posonlyargs, form.args.args, form.args.kwonlyargs, [form.args.vararg, form.args.kwarg]):
            for argument in arguments:
                if argument is not None:
                    argument.annotation = None
        form.returns, form.args.defaults, form.args.kw_defaults = None, [], [None] * len(form.args.kwonlyargs)
        node = self._plain_scope(node)
        for function, helper in ((form, _FORM), (node, _FUNCTION)):
            function.decorator_list = [ast.copy_location(ast.Name(helper, ast.Load()), function)]
        return [form, node]


def _yields(function):
    """Whether a function is a generator."""
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def rewrite(tree, names):
    """Rewrites a cell's tree in place, given the names that cells have bound; says whether anything was changed."""
    known = {name for name, value in names.items() if pools.waiting_form(value) is not None}
    rewriter = _Rewriter(known)
    rewriter.visit(tree)
    if not known <= _names and len(known | _names) <= _NAMES_MAX:
        _names.update(known)
        _patterns[:] = [re.compile(r"\b(?:%s)\b" % "|".join(map(re.escape, sorted(_names))))]
    return rewriter.changed
