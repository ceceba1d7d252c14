"""The small changes that can be made to a module's source, each as a replacement of one stretch of its text."""

from __future__ import annotations

import ast
from dataclasses import dataclass

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLED = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin"},
    **{"any": "all", "all": "any", "sin": "cos", "cos": "sin", "zeros": "ones", "ones": "zeros", "mean": "sum"},
}


@dataclass(frozen=True)
class Mutation:
    """One change: the bytes from `begin` to `end` of the source, `old`, become `new`."""

    line: int  # of the source, from 1
    begin: int
    end: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The source with the change made."""
        raw = source.encode()
        return (raw[: self.begin] + self.new.encode() + raw[self.end :]).decode()

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.line}: {old} -> {new}"


def mutations(source: str) -> list[Mutation]:
    """All of them, in order of place. Left alone: annotations, decorators, docstrings, and text that is for people.

    A comparison gets its boundary moved and is turned round, an operator becomes its opposite, a number its neighbour
    (a fraction its double), a condition is negated, a keyword or an entry of a dictionary is left out, and so is a
    statement that returns nothing: a call, an exception, an assignment to an attribute or an entry.
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda one: (one.begin, one.end, one.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        lengths = [len(line) for line in self.raw.splitlines(keepends=True)]
        self.starts = [sum(lengths[:i]) for i in range(len(lengths))]
        self.found: list[Mutation] = []

    def replace(self, node: ast.stmt | ast.expr, new: str) -> None:
        """`new` in place of the node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        self.found.append(Mutation(node.lineno, begin, end, self.raw[begin:end].decode(), new))

    # -- what is left alone -----------------------------------------------------------------------------------------

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    # -- statements -------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        if not isinstance(node.value, ast.Yield):
            self.replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.replace(node, "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self.replace(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.replace(node, "pass")
        if other := COMPUTED.get(type(node.op)):
            self.replace(node, ast.unparse(ast.AugAssign(node.target, other(), node.value)))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    # -- expressions ------------------------------------------------------------------------------------------------

    def negate(self, test: ast.expr) -> None:
        """The condition turned round, where that is not among the changes of a comparison or of its parts."""
        if not isinstance(test, ast.Compare | ast.Constant) and not _is_not(test):
            self.replace(test, f"not ({ast.unparse(test)})")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, op in enumerate(node.ops):
            for other in COMPARED[type(op)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self.replace(node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if (other := COMPUTED.get(type(node.op))) and not text:
            self.replace(node, f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.replace(node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.replace(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self.replace(node, str(node.value + 1))
        elif isinstance(node.value, float):
            self.replace(node, repr(node.value * 2 or 1.0))

    def visit_Dict(self, node: ast.Dict) -> None:
        for place in range(len(node.keys)):
            keys, values = node.keys[:place] + node.keys[place + 1 :], node.values[:place] + node.values[place + 1 :]
            self.replace(node, ast.unparse(ast.Dict(keys, values)))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in CALLED and function.id != "mean":
            self.replace(function, CALLED[function.id])
        elif isinstance(function, ast.Attribute) and function.attr in CALLED:
            self.replace(function, ast.unparse(ast.Attribute(function.value, CALLED[function.attr], ast.Load())))
        for keyword in node.keywords:
            others = [other for other in node.keywords if other is not keyword]
            self.replace(node, ast.unparse(ast.Call(function, node.args, others)))
        self.generic_visit(node)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
