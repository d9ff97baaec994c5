"""Results as a table: medians with minimum and maximum."""

import statistics
from pathlib import Path

BEGIN, END = "<!-- peers: written by benches/peers -->", "<!-- peers: end -->"


class Results:
    """Values by measure and path, in the order they came."""

    def __init__(self, names):
        self.names = names
        self.values = {}

    def add(self, measure, name, value):
        self.values.setdefault(measure, {}).setdefault(name, []).append(value)

    def markdown(self):
        lines = [f"| median (min–max) | {' | '.join(self.names)} |", "|---" * (len(self.names) + 1) + "|"]
        for measure, by_name in self.values.items():
            lines.append(f"| {measure} | {' | '.join(cell(by_name.get(name, [])) for name in self.names)} |")
        return "\n".join(lines)

    def write_into(self, document, command):
        """Replaces what stands between the two marks."""
        path = Path(document)
        before, _, rest = path.read_text().partition(BEGIN)
        _, mark, after = rest.partition(END)
        if not mark:
            raise SystemExit(f"{document} lacks the marks {BEGIN} and {END}")
        path.write_text(f"{before}{BEGIN}\n\n`{command}`\n\n{self.markdown()}\n\n{END}{after}")


def cell(values):
    """`–` where the path could not be measured; how many rounds could, where only some."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    median, low, high = (number(f(known)) for f in (statistics.median, min, max))
    return f"{median} ({low}–{high})" + ("" if len(known) == len(values) else f", {len(known)} of {len(values)} rounds")


def number(value):
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 20 else 2
    return f"{value:.{digits}f}"
