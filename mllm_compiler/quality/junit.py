"""Gates as JUnit XML, which continuous integration shows: a suite a group, a case a gate."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from mllm_compiler.quality.gates import Gate


def junit(name: str, gates: Sequence[Gate]) -> bytes:
    """The document: https://github.com/testmoapp/junitxml describes what readers agree on.

    Args:
        name: The bundle.
        gates: In order; groups come in the order of their first gate.
    """
    root = ElementTree.Element("testsuites", {"name": name, **_counts(gates)})
    for group in dict.fromkeys(gate.group for gate in gates):
        cases = [gate for gate in gates if gate.group == group]
        suite = ElementTree.SubElement(root, "testsuite", {"name": group, **_counts(cases)})
        for gate in cases:
            case = ElementTree.SubElement(suite, "testcase", classname=group, name=gate.name)
            if not gate.passes:
                failure = ElementTree.SubElement(case, "failure", message=told(gate))
                failure.text = told(gate)
            ElementTree.SubElement(case, "system-out").text = f"{gate.value:.6g}"
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def told(gate: Gate) -> str:
    """A gate in words."""
    if gate.threshold is None:
        return f"{gate.name} is {gate.value:.6g}"
    bound = "at least" if gate.least else "at most"
    return f"{gate.name} is {gate.value:.6g}, {bound} {gate.threshold:g} is allowed"


def _counts(gates: Sequence[Gate]) -> dict[str, str]:
    failed = sum(not gate.passes for gate in gates)
    return {"tests": str(len(gates)), "failures": str(failed), "errors": "0"}
