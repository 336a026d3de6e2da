"""VFB2's claims: rates, step sizes, staleness, the nonconvex problem, losslessness."""

from jaxfed.theory import report

if __name__ == "__main__":
    report.script("vertical")
