# Writes studies.json: the data of the tests of studies, and what R says of them.
#   Rscript studies.R > studies.json      with survival, MASS, nnet, sandwich, lmtest, ordinal, metafor and jsonlite
suppressPackageStartupMessages({
  library(survival); library(MASS); library(nnet); library(sandwich); library(lmtest); library(metafor); library(jsonlite)
})
set.seed(20261126)
n <- 160
d <- data.frame(
  age = round(rnorm(n, 60, 9), 1), dose = round(runif(n, 0, 4), 2), arm = rbinom(n, 1, 0.5),
  site = sample(0:2, n, TRUE), offset = round(runif(n, -1, 1), 2), weight = sample(1:3, n, TRUE),
  cluster = sample(0:11, n, TRUE)
)
eta <- 0.05 * (d$age - 60) - 0.5 * d$dose + 0.8 * d$arm
d$ill <- rbinom(n, 1, plogis(0.4 + eta))
d$value <- round(20 + 3 * eta + rnorm(n, 0, 2 + d$arm), 3)
d$count <- rnbinom(n, size = 1.7, mu = exp(0.7 + 0.6 * eta))
d$grade <- as.integer(cut(eta + rlogis(n), c(-Inf, -1.5, 0, 1.2, Inf))) - 1
d$kind <- apply(cbind(0, 0.5 + eta, -0.3 - 0.6 * eta) - log(-log(matrix(runif(3 * n), n))), 1, which.max) - 1
d$time <- round(rexp(n, 0.02 * exp(0.7 * eta)) + 0.05, 1)
d$end <- round(runif(n, 5, 120), 1)
d$event <- as.integer(d$time <= d$end)
d$time <- pmin(d$time, d$end)
d$end <- NULL
bins <- c(2, 5, 10, 15, 20, 30, 45, 60, 90, 130)
d$binned <- bins[findInterval(d$time, bins, left.open = TRUE) + 1]
twice <- d[rep(seq_len(n), d$weight), ]

full <- function(m) list(estimate = unname(coef(m)), covariance = unname(vcov(m)), loglik = as.numeric(logLik(m)),
                         aic = AIC(m))
tight <- glm.control(epsilon = 1e-14, maxit = 100)
rhs <- ~ age + dose + arm
# Twice, as errors are those of the point before the last: the second fit begins at the end of the first.
fit_glm <- function(y, family) {
  m <- glm(update(rhs, paste(y, "~ .")), family, d, weights = weight, offset = offset, control = tight)
  eval(substitute(glm(formula(m), family, d, weights = weight, offset = offset, control = tight, start = at),
                  list(at = coef(m))))
}
robust <- function(m) list(
  HC0 = unname(vcovHC(m, "HC0")), HC1 = unname(vcovHC(m, "HC1")),
  CR0 = unname(vcovCL(m, d$cluster, type = "HC0", cadjust = FALSE)), CR1 = unname(vcovCL(m, d$cluster)))
logistic <- fit_glm("ill", binomial)
poisson_ <- fit_glm("count", poisson)
plain <- lm(value ~ age + dose + arm, d, offset = offset)
linear <- lm(value ~ age + dose + arm, twice, offset = offset)
logistic_plain <- glm(ill ~ age + dose + arm, binomial, d, control = tight)
small <- glm(ill ~ age, binomial, d, control = tight)
by_site <- glm(ill ~ factor(site) * arm, binomial, twice, control = tight)
linear_site <- lm(value ~ factor(site) * arm, twice)
poisson_site <- glm(count ~ factor(site) * arm, poisson, twice, offset = offset, control = tight)
nb <- glm.nb(count ~ age + dose + arm + offset(offset), d, weights = weight, control = glm.control(1e-14, 100))
size <- nb$theta
again <- glm(count ~ age + dose + arm + offset(offset), negative.binomial(size), d, weights = weight, control = tight,
             start = coef(nb))
nb_out <- list(estimate = unname(coef(again)), covariance = unname(summary(again, dispersion = 1)$cov.scaled),
               robust = unname(sandwich(again)), theta = size, loglik = as.numeric(nb$twologlik) / 2,
               theta_error = attr(theta.ml(d$count, fitted(again), sum(d$weight), d$weight, 100, 1e-12), "SE"))
multi <- multinom(kind ~ I(age - 60) + dose + arm, d, weights = weight, maxit = 1000, reltol = 1e-16, abstol = 0,
                  trace = FALSE)
multi_out <- list(estimate = unname(c(t(coef(multi)))), covariance = unname(vcov(multi)),
                  loglik = as.numeric(logLik(multi)))
polr_ <- polr(factor(grade) ~ I(age - 60) + dose + arm + offset(offset), d, weights = weight, Hess = TRUE,
              control = list(reltol = 1e-16, maxit = 1000))
polr_out <- list(zeta = unname(polr_$zeta), estimate = unname(coef(polr_)), covariance = unname(vcov(polr_)),
                 loglik = as.numeric(logLik(polr_)))
# sandwich's scores of polr know no weights.
plain_polr <- polr(factor(grade) ~ I(age - 60) + dose + arm, d, Hess = TRUE, control = list(reltol = 1e-16, maxit = 1000))
polr_out$robust <- unname(sandwich(plain_polr))
clm_ <- ordinal::clm(factor(grade) ~ I(age - 60) + dose + arm + offset(offset), data = d, weights = weight,
                     control = list(gradTol = 1e-10))
clm_out <- list(estimate = unname(coef(clm_)), covariance = unname(vcov(clm_)), loglik = as.numeric(logLik(clm_)))

# Survival.
exact <- coxph.control(eps = 1e-14, toler.chol = 1e-15, iter.max = 100)
cox_of <- function(time, ties, extra = "", ...) {
  formula <- as.formula(paste0("Surv(", time, ", event) ~ age + dose + arm", extra))
  m <- eval(substitute(coxph(formula, d, ties = ties, control = exact, ...)))
  out <- list(estimate = unname(coef(m)), covariance = unname(vcov(m)), loglik = m$loglik[2], null = m$loglik[1])
  if (!is.null(m$naive.var)) out$naive <- unname(m$naive.var)
  out
}
zph_of <- function(time, transform, extra = "") {
  m <- coxph(as.formula(paste0("Surv(", time, ", event) ~ age + dose + arm", extra)), d, control = exact)
  unname(cox.zph(m, transform = if (transform == "log") log else transform, terms = FALSE)$table)
}
cox <- list()
for (time in c("time", "binned")) for (ties in c("efron", "breslow")) cox[[paste(time, ties)]] <- list(
  plain = cox_of(time, ties), strata = cox_of(time, ties, " + strata(site) + offset(offset)"),
  weighted = cox_of(time, ties, "", weights = weight, robust = FALSE),
  robust = cox_of(time, ties, " + strata(site)", weights = weight, robust = TRUE),
  cluster = cox_of(time, ties, "", weights = weight, cluster = cluster))
zph <- list()
for (time in c("time", "binned")) for (how in c("km", "log", "identity"))
  zph[[paste(time, how)]] <- list(plain = zph_of(time, how), strata = zph_of(time, how, " + strata(site)"))
km <- list(); rank_ <- list()
for (time in c("time", "binned")) {
  s <- survfit(as.formula(paste0("Surv(", time, ", event) ~ site")), twice, conf.type = "log-log")
  q <- quantile(s, 0.5)
  t_ <- summary(s, censored = TRUE)
  km[[time]] <- list(time = t_$time, n = t_$n.risk, d = t_$n.event, surv = t_$surv, err = t_$std.err, low = t_$lower,
                     high = t_$upper, group = as.integer(t_$strata), median = unname(q$quantile[, 1]),
                     median_low = unname(q$lower[, 1]), median_high = unname(q$upper[, 1]))
  rank_[[time]] <- list(plain = survdiff(as.formula(paste0("Surv(", time, ", event) ~ site")), d)$chisq,
                        strata = survdiff(as.formula(paste0("Surv(", time, ", event) ~ site + strata(arm)")), d)$chisq)
}
even <- survfit(Surv(c(1, 2, 3, 4, 5, 6), c(1, 1, 1, 1, 0, 1)) ~ 1, conf.type = "log-log")

# Meta-analysis.
yi <- c(0.52, 0.11, 0.73, -0.08, 0.35, 0.91, 0.28)
vi <- c(0.04, 0.09, 0.05, 0.03, 0.12, 0.08, 0.02)
meta <- list(y = yi, v = vi)
for (method in c("FE", "DL", "REML")) for (test in c("z", "knha")) {
  m <- rma(yi, vi, method = method, test = if (method == "FE") "z" else test,
           control = list(threshold = 1e-14, maxiter = 1000))
  ahead <- m$beta[1] + c(-1, 1) * qt(0.975, length(yi) - 2) * sqrt(m$tau2 + m$se^2) # Higgins et al. 2009
  meta[[paste(method, test)]] <- list(ahead = ahead,estimate = as.numeric(m$beta), error = m$se, p = m$pval, low = m$ci.lb,
    high = m$ci.ub, tau2 = m$tau2, i2 = m$I2, q = m$QE, q_p = m$QEp)
}

cat(toJSON(list(
  made_by = list(R = R.version.string, survival = as.character(packageVersion("survival")),
                 MASS = as.character(packageVersion("MASS")), nnet = as.character(packageVersion("nnet")),
                 sandwich = as.character(packageVersion("sandwich")), ordinal = as.character(packageVersion("ordinal")),
                 metafor = as.character(packageVersion("metafor"))),
  data = as.list(d), bins = bins,
  logistic = full(logistic), poisson = full(poisson_), linear = c(full(linear), list(sigma2 = sigma(linear)^2)),
  linear_test = unname(summary(linear)$coefficients), linear_ci = unname(confint(linear)),
  logistic_test = unname(summary(logistic)$coefficients), logistic_ci = unname(confint.default(logistic)),
  robust = list(logistic = robust(logistic), poisson = robust(poisson_), linear = robust(plain)),
  robust_test = unname(coeftest(plain, vcovCL(plain, d$cluster))[, 1:4]),
  lrt = unname(unlist(lrtest(small, logistic_plain)[2, c("Chisq", "Df", "Pr(>Chisq)")])),
  patterns = list(logistic = full(by_site), linear = full(linear_site), poisson = full(poisson_site)),
  nb = nb_out, multinomial = multi_out, polr = polr_out, clm = clm_out,
  cox = cox, zph = zph, km = km, logrank = rank_,
  even = list(median = unname(quantile(even, 0.5)$quantile)),
  meta = meta
), digits = NA, auto_unbox = TRUE), "\n")
