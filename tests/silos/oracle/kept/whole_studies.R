# What R says of the rows that tests/silos/oracle/test_whole_studies.py writes: Rscript whole_studies.R ROWS.csv > whole_studies.json
suppressPackageStartupMessages({library(survival); library(MASS); library(nnet); library(sandwich); library(splines)})
d <- read.csv(commandArgs(TRUE)[1], stringsAsFactors = FALSE)
d$sex <- factor(d$sex, c("f", "m")); d$stage <- factor(d$stage, c("1", "2", "3")); d$site <- factor(d$site, c("a", "b", "c"))
d$y <- as.integer(d$ill == "yes")
ends <- c(seq(30, 360, 30), 365)
d$bin <- ends[findInterval(d$days, ends, left.open = TRUE) + 1]
show <- function(b, v) paste0("[", paste(sprintf("[%.17g, %.17g]", b, sqrt(diag(v))), collapse = ", "), "]")
tight <- glm.control(epsilon = 1e-15, maxit = 200)
out <- list()
add <- function(name, m, v = vcov(m), b = coef(m)) out[[name]] <<- show(b, v)
m <- glm(y ~ age + crp + sex * stage + ns(crp, knots = c(5, 20), Boundary.knots = c(0.1, 100)) - crp + site, binomial, d, control = tight); add("logistic", m)
m <- glm(y ~ age + sex, binomial, d, control = tight); add("robust", m, sandwich(m)); add("cluster", m, vcovCL(m, paste(d$site, d$clinic), type = "HC0", cadjust = TRUE))
m <- lm(log(crp) ~ age + I(age^2) + site, d); add("linear", m); m <- lm(crp ~ age + site, d); add("linear HC1", m, vcovHC(m, "HC1"))
m <- glm(visits ~ age + sex + offset(log(crp)), poisson, d, control = tight); add("poisson", m)
m <- glm.nb(visits ~ age + sex, d, control = glm.control(epsilon = 1e-14, maxit = 500)); add("negative-binomial", m)
m <- multinom(stage ~ age + sex, d, trace = FALSE, reltol = 1e-16, abstol = 1e-16, maxit = 2000); add("multinomial", m, b = as.vector(t(coef(m))))
m <- polr(stage ~ age + sex, d, Hess = TRUE, control = list(reltol = 1e-16, maxit = 2000)); add("ordinal", m, b = c(coef(m), m$zeta))
cc <- coxph.control(eps = 1e-14, toler.chol = 1e-14, iter.max = 100)
d$event <- d$y
add("cox", coxph(Surv(days, event) ~ age + sex + strata(site), d, ties = "efron", control = cc))
add("cox of bins", coxph(Surv(bin, event) ~ age + sex, d, ties = "efron", control = cc))
add("cox breslow", coxph(Surv(bin, event) ~ age + sex + strata(stage), d, ties = "breslow", robust = TRUE, control = cc))
# Terms with several coefficients: R's own drop1 of a linear model, b'V^-1b of vcov() of others.
wald <- function(m, i, b = coef(m), v = vcov(m)) c(drop(b[i] %*% solve(v[i, i]) %*% b[i]), length(i))
f <- drop1(lm(crp ~ age + stage, d), test = "F")["stage", ]
g <- glm(y ~ age + crp + sex * stage + ns(crp, knots = c(5, 20), Boundary.knots = c(0.1, 100)) - crp + site, binomial, d, control = tight)
at <- function(pattern) grep(pattern, names(coef(g)))
p_of <- function(w) c(w, pchisq(w[1], w[2], lower.tail = FALSE))
joint <- list("linear stage" = c(f[["F value"]], f[["Df"]], f[["Pr(>F)"]]),
  "logistic ns(crp, 3)" = p_of(wald(g, at("^ns"))), "logistic stage" = p_of(wald(g, at("^stage"))),
  "logistic sex:stage" = p_of(wald(g, at("sexm:stage"))))
joint <- paste0("{", paste(sprintf("\"%s\": [%.17g, %.17g, %.17g]", names(joint), sapply(joint, `[`, 1), sapply(joint, `[`, 2), sapply(joint, `[`, 3)), collapse = ", "), "}")
fit <- survfit(Surv(bin, event) ~ sex, d); s <- summary(fit, times = ends, extend = TRUE)
curves <- paste0("[", paste(sprintf("[%.17g, %.17g]", s$surv, s$std.err), collapse = ", "), "]")
lr <- survdiff(Surv(bin, event) ~ sex, d)
cat("{", paste(sprintf("\"%s\": %s", names(out), unlist(out)), collapse = ",\n"), ",\n\"curves\": ", curves,
  ",\n\"terms\": ", joint, sprintf(",\n\"log-rank\": %.17g", lr$chisq), "}\n", sep = "")
