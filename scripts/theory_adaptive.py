"""Adaptive alpha: what it follows, what it costs against the best fixed one, where it is updated."""

from jaxfed.theory import report

if __name__ == "__main__":
    report.script("adaptive")
