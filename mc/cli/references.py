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
        The journal, or the publisher.
    for_what : str
        The formulas that are taken from it.
    """

    authors: str
    year: int
    title: str
    where: str
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
            "Acerbi, C.; Tasche, D.", 2002, "On the coherence of expected shortfall",
            "Journal of Banking & Finance", "expected shortfall",
        ),
        (
            "Brazauskas, V.; Jones, B. L.; Puri, M. L.; Zitikis, R.", 2008,
            "Estimating conditional tail expectation with actuarial applications in view",
            "Journal of Statistical Planning and Inference", "error of an expected shortfall",
        ),
        (
            "Chan, T. F.; Golub, G. H.; LeVeque, R. J.", 1983,
            "Algorithms for computing the sample variance: analysis and recommendations",
            "The American Statistician", "adding up sums of squares",
        ),
        (
            "Clopper, C. J.; Pearson, E. S.", 1934,
            "The use of confidence or fiducial limits illustrated in the case of the binomial",
            "Biometrika", "shares where few hold or fail",
        ),
        (
            "Cochran, W. G.", 1977, "Sampling Techniques, 3rd edition", "Wiley",
            "when a sample is too skewed (2.15), ratios of means by the delta method (6.3)",
        ),
        (
            "Conover, W. J.", 1999, "Practical Nonparametric Statistics, 3rd edition", "Wiley",
            "intervals of quantiles (3.2)",
        ),
        (
            "Davison, A. C.; Hinkley, D. V.", 1997, "Bootstrap Methods and their Application",
            "Cambridge University Press", "where a published figure lies among the seeds (4.2)",
        ),
        (
            "Devroye, L.", 1986, "Non-Uniform Random Variate Generation", "Springer",
            "Poisson and binomial numbers (III.2)",
        ),
        (
            "Dunn, O. J.", 1961, "Multiple comparisons among means",
            "Journal of the American Statistical Association",
            "several intervals together (Bonferroni)",
        ),
        (
            "Hsu, J. C.", 1981,
            'Simultaneous confidence intervals for all distances from the "best"',
            "The Annals of Statistics", "multiple comparisons with the best",
        ),
        (
            "Hsu, J. C.", 1984,
            "Constrained simultaneous confidence intervals for multiple comparisons with the best",
            "The Annals of Statistics", "intervals of these, cut off at 0",
        ),
        (
            "Hsu, J. C.", 1996, "Multiple Comparisons: Theory and Methods", "Chapman & Hall",
            "multiple comparisons with the best (4.2)",
        ),
        (
            "Hyndman, R. J.; Fan, Y.", 1996, "Sample quantiles in statistical packages",
            "The American Statistician", "quantiles (definition 1)",
        ),
        (
            "Irwin, J. O.", 1949,
            "The standard error of an estimate of expectation of life, with special reference to "
            "expectation of tumourless life in experiments with mice",
            "The Journal of Hygiene", "means of what may not come within the run, up to its end",
        ),
        (
            "Koehler, E.; Brown, E.; Haneuse, S. J.-P. A.", 2009,
            "On the assessment of Monte Carlo error in simulation-based statistical analyses",
            "The American Statistician", "how many replications a half-width needs",
        ),
        (
            "Lavenberg, S. S.; Welch, P. D.", 1981,
            "A perspective on the use of control variables to increase the efficiency of Monte "
            "Carlo simulations",
            "Management Science", "adjusted means (control variates)",
        ),
        (
            "Law, A. M.", 2015, "Simulation Modeling and Analysis, 5th edition", "McGraw-Hill",
            "intervals of means (4.5), paired differences (10.2), relative precision (9.4)",
        ),
        (
            "Maurer, A.; Pontil, M.", 2009,
            "Empirical Bernstein bounds and sample variance penalization",
            "Conference on Learning Theory", "differences that are too rare or too skewed for t",
        ),
        (
            "Morris, T. P.; White, I. R.; Crowther, M. J.", 2019,
            "Using simulation studies to evaluate statistical methods", "Statistics in Medicine",
            "Monte Carlo standard errors",
        ),
        (
            "Nelson, B. L.", 1990, "Control variate remedies", "Operations Research",
            "adjusted means",
        ),
        (
            "Nelson, B. L.; Matejcik, F. J.", 1995,
            "Using common random numbers for indifference-zone selection and multiple comparisons "
            "in simulation",
            "Management Science", "multiple comparisons of paired samples",
        ),
        (
            "Robbins, H.", 1970,
            "Statistical methods related to the law of the iterated logarithm",
            "The Annals of Mathematical Statistics", "shares behind verdicts, at every look",
        ),
        (
            "Salmon, J. K.; Moraes, M. A.; Dror, R. O.; Shaw, D. E.", 2011,
            "Parallel random numbers: as easy as 1, 2, 3",
            "International Conference for High Performance Computing (SC11)",
            "random numbers (Philox4x32-10)",
        ),
        (
            "Schuirmann, D. J.", 1987,
            "A comparison of the two one-sided tests procedure and the power approach for "
            "assessing the equivalence of average bioavailability",
            "Journal of Pharmacokinetics and Biopharmaceutics", "practical equality",
        ),
        (
            "Student", 1908, "The probable error of a mean", "Biometrika",
            "means and paired differences",
        ),
        (
            "Waudby-Smith, I.; Arbour, D.; Sinha, R.; Kennedy, E. H.; Ramdas, A.", 2024,
            "Time-uniform central limit theory and asymptotic confidence sequences",
            "The Annals of Statistics", "mean differences behind verdicts, at every look",
        ),
        (
            "Westfall, P. H.; Young, S. S.", 1993, "Resampling-Based Multiple Testing", "Wiley",
            "how far out all published figures lie together (2.3)",
        ),
        (
            "Wilson, E. B.", 1927,
            "Probable inference, the law of succession, and statistical inference",
            "Journal of the American Statistical Association", "shares",
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
        yield "}"
