"""Where the formulas come from: the sources that docstrings name, and of which `methods` cites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple


class Source(NamedTuple):
    """A paper or a book.

    Attributes
    ----------
    authors : str
        With semicolons between them.
    year : int
    title : str
    where : str
        The journal with volume and pages, or the publisher.
    doi : str
        Empty where there is none, or none is known for sure.
    for_what : str
        The formulas that are taken from it.
    """

    authors: str
    year: int
    title: str
    where: str
    doi: str
    for_what: str

    @property
    def key(self) -> str:
        """Its name in BibTeX."""
        return f"{self.authors.partition(',')[0].lower()}{self.year}"

    @property
    def cited(self) -> str:
        """How a text cites it: Wilson 1927, Clopper and Pearson 1934, Salmon et al. 2011."""
        names = [name.partition(",")[0] for name in self.authors.split("; ")]
        who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        return f"{who} {self.year}"

    @property
    def text(self) -> str:
        """As a list of references has it."""
        return f"{self.authors} ({self.year}). {self.title}. {self.where}."


SOURCES: Final = tuple(
    Source(*fields)
    for fields in (
        (
            "Acerbi, C.; Tasche, D.", 2002,
            "On the coherence of expected shortfall",
            "Journal of Banking & Finance 26(7), 1487–1503",
            "10.1016/S0378-4266(02)00283-2",
            "expected shortfall",
        ),
        (
            "Brazauskas, V.; Jones, B. L.; Puri, M. L.; Zitikis, R.", 2008,
            "Estimating conditional tail expectation with actuarial applications in view",
            "Journal of Statistical Planning and Inference 138, 3590–3604",
            "",
            "error of an expected shortfall",
        ),
        (
            "Chan, T. F.; Golub, G. H.; LeVeque, R. J.", 1983,
            "Algorithms for computing the sample variance: analysis and recommendations",
            "The American Statistician 37(3), 242–247",
            "10.1080/00031305.1983.10483115",
            "adding up sums of squares",
        ),
        (
            "Clopper, C. J.; Pearson, E. S.", 1934,
            "The use of confidence or fiducial limits illustrated in the case of the binomial",
            "Biometrika 26(4), 404–413",
            "10.1093/biomet/26.4.404",
            "shares where few hold or fail",
        ),
        (
            "Cochran, W. G.", 1977,
            "Sampling Techniques, 3rd edition",
            "Wiley",
            "",
            "when a sample is too skewed (2.15), ratios of means by the delta method (6.3)",
        ),
        (
            "Conover, W. J.", 1999,
            "Practical Nonparametric Statistics, 3rd edition",
            "Wiley",
            "",
            "intervals of quantiles (3.2)",
        ),
        (
            "Davison, A. C.; Hinkley, D. V.", 1997,
            "Bootstrap Methods and their Application",
            "Cambridge University Press",
            "",
            "where a published figure lies among the seeds (4.2)",
        ),
        (
            "Devroye, L.", 1986,
            "Non-Uniform Random Variate Generation",
            "Springer",
            "10.1007/978-1-4613-8643-8",
            "Poisson and binomial numbers (III.2)",
        ),
        (
            "Dunn, O. J.", 1961,
            "Multiple comparisons among means",
            "Journal of the American Statistical Association 56(293), 52–64",
            "10.1080/01621459.1961.10482090",
            "several intervals together (Bonferroni)",
        ),
        (
            "Hsu, J. C.", 1981,
            'Simultaneous confidence intervals for all distances from the "best"',
            "The Annals of Statistics 9(5), 1026–1034",
            "10.1214/aos/1176345582",
            "multiple comparisons with the best",
        ),
        (
            "Hsu, J. C.", 1984,
            "Constrained simultaneous confidence intervals for multiple comparisons with the best",
            "The Annals of Statistics 12(3), 1136–1144",
            "10.1214/aos/1176346732",
            "intervals of these, cut off at 0",
        ),
        (
            "Hsu, J. C.", 1996,
            "Multiple Comparisons: Theory and Methods",
            "Chapman & Hall",
            "",
            "multiple comparisons with the best (4.2)",
        ),
        (
            "Hyndman, R. J.; Fan, Y.", 1996,
            "Sample quantiles in statistical packages",
            "The American Statistician 50(4), 361–365",
            "10.1080/00031305.1996.10473566",
            "quantiles (definition 1)",
        ),
        (
            "Irwin, J. O.", 1949,
            "The standard error of an estimate of expectation of life, with special reference"
            " to expectation of tumourless life in experiments with mice",
            "Journal of Hygiene 47(2), 188–189",
            "10.1017/S0022172400014443",
            "means of what may not come within the run, up to its end",
        ),
        (
            "Koehler, E.; Brown, E.; Haneuse, S. J.-P. A.", 2009,
            "On the assessment of Monte Carlo error in simulation-based statistical analyses",
            "The American Statistician 63(2), 155–162",
            "10.1198/tast.2009.0030",
            "how many replications a half-width needs",
        ),
        (
            "Lavenberg, S. S.; Welch, P. D.", 1981,
            "A perspective on the use of control variables to increase the efficiency of "
            "Monte Carlo simulations",
            "Management Science 27(3), 322–335",
            "10.1287/mnsc.27.3.322",
            "adjusted means (control variates)",
        ),
        (
            "Law, A. M.", 2015,
            "Simulation Modeling and Analysis, 5th edition",
            "McGraw-Hill",
            "",
            "intervals of means (4.5), paired differences (10.2), relative precision (9.4)",
        ),
        (
            "Maurer, A.; Pontil, M.", 2009,
            "Empirical Bernstein bounds and sample variance penalization",
            "Proceedings of the 22nd Annual Conference on Learning Theory (COLT)",
            "",
            "differences that are too rare or too skewed for t",
        ),
        (
            "Morris, T. P.; White, I. R.; Crowther, M. J.", 2019,
            "Using simulation studies to evaluate statistical methods",
            "Statistics in Medicine 38(11), 2074–2102",
            "10.1002/sim.8086",
            "Monte Carlo standard errors",
        ),
        (
            "Nelson, B. L.", 1990,
            "Control variate remedies",
            "Operations Research 38(6), 974–992",
            "10.1287/opre.38.6.974",
            "adjusted means",
        ),
        (
            "Nelson, B. L.; Matejcik, F. J.", 1995,
            "Using common random numbers for indifference-zone selection and multiple "
            "comparisons in simulation",
            "Management Science 41(12), 1935–1945",
            "10.1287/mnsc.41.12.1935",
            "multiple comparisons of paired samples",
        ),
        (
            "Robbins, H.", 1970,
            "Statistical methods related to the law of the iterated logarithm",
            "The Annals of Mathematical Statistics 41(5), 1397–1409",
            "10.1214/aoms/1177696786",
            "shares behind verdicts, at every look",
        ),
        (
            "Salmon, J. K.; Moraes, M. A.; Dror, R. O.; Shaw, D. E.", 2011,
            "Parallel random numbers: as easy as 1, 2, 3",
            "Proceedings of 2011 International Conference for High Performance Computing, "
            "Networking, Storage and Analysis (SC11)",
            "10.1145/2063384.2063405",
            "random numbers (Philox4x32-10)",
        ),
        (
            "Schuirmann, D. J.", 1987,
            "A comparison of the two one-sided tests procedure and the power approach for "
            "assessing the equivalence of average bioavailability",
            "Journal of Pharmacokinetics and Biopharmaceutics 15(6), 657–680",
            "10.1007/BF01068419",
            "practical equality",
        ),
        (
            "Student", 1908,
            "The probable error of a mean",
            "Biometrika 6(1), 1–25",
            "10.1093/biomet/6.1.1",
            "means and paired differences",
        ),
        (
            "Waudby-Smith, I.; Arbour, D.; Sinha, R.; Kennedy, E. H.; Ramdas, A.", 2024,
            "Time-uniform central limit theory and asymptotic confidence sequences",
            "The Annals of Statistics 52(6), 2613–2640",
            "10.1214/24-AOS2408",
            "mean differences behind verdicts, at every look",
        ),
        (
            "Westfall, P. H.; Young, S. S.", 1993,
            "Resampling-Based Multiple Testing: Examples and Methods for p-Value Adjustment",
            "Wiley",
            "",
            "how far out all published figures lie together (2.3)",
        ),
        (
            "Wilson, E. B.", 1927,
            "Probable inference, the law of succession, and statistical inference",
            "Journal of the American Statistical Association 22(158), 209–212",
            "10.1080/01621459.1927.10502953",
            "shares",
        ),
    )
)  # fmt: skip
"""In the order of the alphabet."""


def cited_in(text: str) -> list[Source]:
    """The sources that a text cites."""
    return [source for source in SOURCES if source.cited in text]


def bibtex(sources: list[Source]) -> Iterator[str]:
    """Yield the entries of a .bib file."""
    for of in sources:
        yield f"@misc{{{of.key},"
        yield f"  author = {{{of.authors.replace('; ', ' and ')}}},"
        yield f"  title = {{{{{of.title}}}}},"
        yield f"  year = {{{of.year}}},"
        yield f"  howpublished = {{{of.where.replace('&', chr(92) + '&')}}},"
        if of.doi:
            yield f"  doi = {{{of.doi}}},"
        yield "}"
