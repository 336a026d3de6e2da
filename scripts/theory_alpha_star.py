"""alpha* of APFL's bound against the best alpha, with the bounded class that it assumes and without."""

from jaxfed.theory import report

if __name__ == "__main__":
    report.script("alpha_star")
