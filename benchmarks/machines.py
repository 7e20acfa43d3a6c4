"""What a fit takes on many machines, calculated from what was measured on one: nothing here is a measurement.

    python -m benchmarks.machines --machines 1 8 100 --terabytes 1

From results/dask_partition.csv come the seconds of a partition in each reading, the bytes of its message and the
seconds of adding two; from results/dask_workers.csv what Dask and the memory of a machine that all workers share add to
a partition: workers × seconds / partitions of the run with most workers, less the sum of the former. Machines have one
core each. They work on their partitions and add their own sums, then add in a tree: each of ceil(log2) levels sends one
message over a link of --network Gbit/s and adds it. Reading files and searching are left out.

From results/out_of_core.csv and results/out_of_core_interactions.csv comes what one machine takes, and a disk of --disk
GB/s; a step of interactions is what the second took beyond an additive fit, over its readings.
"""

from __future__ import annotations

import argparse
import math

from benchmarks.figures import stored


def table(name):
    head, *rows = stored(name)
    return [dict(zip(head, row, strict=True)) for row in rows]


def simulated(machines, partitions, readings, overhead, network):
    """Return the seconds of work and those of adding over the network."""
    each = math.ceil(partitions / machines)
    levels = math.ceil(math.log2(machines)) if machines > 1 else 0
    work, adding = each * overhead, 0.0
    for seconds, size, add in readings:
        work += each * seconds + (each - 1) * add
        adding += levels * (size * 8 / (network * 1e9) + add)
    return work, adding


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 8, 100])
    parser.add_argument("--terabytes", type=float, default=1.0, help="size of the table, 8 bytes a number")
    parser.add_argument("--disk", type=float, default=1.0, help="GB/s of a disk")
    parser.add_argument("--network", type=float, default=10.0, help="Gbit/s of a link")
    options = parser.parse_args()
    measured, runs = table("dask_partition.csv"), table("dask_workers.csv")
    size, columns = int(measured[0]["rows"]), int(measured[0]["columns"])
    readings = [(float(row["s"]), int(row["message, bytes"]), float(row["adding, s"])) for row in measured]
    alone = sum(seconds for seconds, *_ in readings)
    most = max(runs, key=lambda row: int(row["workers"]))
    overhead = max(0.0, int(most["workers"]) * float(most["s"]) / (float(most["rows"].replace(",", "")) / size) - alone)
    partitions = math.ceil(options.terabytes * 1e12 / (8 * columns) / size)
    print(
        f"a partition of {size:,} rows × {columns}: {alone:.2f} s, and {overhead:.2f} s with {most['workers']} workers"
    )
    print("| machines | partitions each | work, s | adding over the network, s | in all |\n|---|---|---|---|---|")
    for machines in options.machines:
        work, adding = simulated(machines, partitions, readings, overhead, options.network)
        whole = work + adding
        shown = f"{whole / 60:.0f} minutes" if whole >= 600 else f"{whole:.0f} s"
        print(f"| {machines} | {math.ceil(partitions / machines):,} | {work:,.0f} | {adding:.1f} | {shown} |")
    one_machine(options.terabytes, options.disk)


def one_machine(terabytes, disk):
    """Print what a terabyte takes on the machine of out_of_core.csv: processor time grows with the rows."""
    fit, interactions = table("out_of_core.csv")[-1], table("out_of_core_interactions.csv")[-1]  # the newest
    rows, columns = (float(part.replace(",", "")) for part in fit["rows × columns"].split(" × "))
    some = float(interactions["rows × columns"].split(" × ")[0].replace(",", ""))
    factor = terabytes * 1e12 / (8 * columns) / rows
    readings, more = float(fit["times read"]), float(interactions["times read"]) - float(fit["times read"])
    step = (float(interactions["processor, s"]) * rows / some - float(fit["processor, s"])) / more
    print("\n| a terabyte on one machine | hours of one core | of two, both busy | readings | minutes of the disk |")
    print("|---|---|---|---|---|")
    seconds = {"additive fit": (factor * float(fit["processor, s"]), readings),
               "each step of interactions": (factor * step, 1.0)}  # fmt: skip
    for name, (core, times) in seconds.items():
        minutes = times * terabytes * 1e12 / (disk * 1e9) / 60
        print(f"| {name} | {core / 3600:.1f} | {core / 7200:.1f} | {times:.1f} | {minutes:.0f} |")


if __name__ == "__main__":
    main()
