"""When does personalisation help: the gain over FedAvg and over local training as a phase diagram."""

from jaxfed.theory import report

if __name__ == "__main__":
    report.script("phase")
