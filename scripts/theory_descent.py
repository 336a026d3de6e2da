"""Local Descent APFL: rates of the global and the personal models, and what their residual depends on."""

from jaxfed.theory import report

if __name__ == "__main__":
    report.script("descent")
