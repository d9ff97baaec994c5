"""What was measured, printed as it comes, judged, and kept for --json."""

import json
import os


class Report:
    def __init__(self):
        self.figures = []
        self.faults = []
        self._section = ""

    def section(self, title):
        self._section = title
        print(f"\n{title}", flush=True)

    def row(self, *cells, fault=None, **figures):
        """One line of the section. `fault` says what is wrong with it, if anything is."""
        if fault:
            self.faults.append(fault)
        columns = (24, 26, 17, 11)
        padded = "".join(str(cell).ljust(width) for cell, width in zip(cells, columns))
        rest = "  ".join(str(cell) for cell in cells[len(columns) :])
        print(f"  {padded}{rest}{'   ← FAIL' if fault else ''}".rstrip(), flush=True)
        self.figures.append({"section": self._section, "passed": fault is None, **figures})

    def write(self, path):
        with open(path, "w") as file:
            json.dump({"passed": not self.faults, "faults": self.faults, "figures": self.figures}, file, indent=2)
            file.write("\n")
        # Under sudo the file is the caller's, as if they had written it.
        if "SUDO_UID" in os.environ:
            os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))

    def verdict(self):
        """Prints how it ended; the exit status that goes with it."""
        print()
        if self.faults:
            print(f"demo: FAIL: {'; '.join(self.faults)}", flush=True)
            return 1
        print("demo: PASS", flush=True)
        return 0


def mbit(bits_per_second):
    return f"{bits_per_second / 1e6:,.1f} Mbit/s"


def percent(ratio):
    return f"{100 * ratio:+.2f} %"


def ms(value):
    return "-" if value is None else f"{value:.2f} ms"
