# Writes from_r.json: what R says of the lung data (survival) cut in four by row, as the tests cut it.
#   Rscript from_r.R > from_r.json      with survival, pROC and jsonlite
suppressPackageStartupMessages({library(survival); library(pROC); library(jsonlite)})
d <- lung[, c("time", "status", "age", "sex", "ph.ecog")]
d$silo <- (seq_len(nrow(d)) - 1) %% 4
d$dead <- d$status - 1
full <- d[!is.na(d$ph.ecog), ]
coefs <- function(m) unname(summary(m)$coefficients)
logistic <- glm(dead ~ age + sex + ph.ecog, binomial, full, control = list(epsilon = 1e-14, maxit = 100))
linear <- lm(time ~ age + sex + ph.ecog, full)
tight <- coxph.control(eps = 1e-14, toler.chol = 1e-14, iter.max = 100)
efron <- coxph(Surv(time, dead) ~ age + sex + ph.ecog, full, ties = "efron", control = tight)
strata_ <- coxph(Surv(time, dead) ~ age + sex + strata(silo), full, ties = "efron", control = tight)
km <- summary(survfit(Surv(time, dead) ~ sex, d))
rank_ <- survdiff(Surv(time, dead) ~ sex, d)
zph <- cox.zph(efron, transform = "rank", terms = FALSE)
first <- roc(full$dead, full$ph.ecog, quiet = TRUE, direction = "<")
second <- roc(full$dead, full$age, quiet = TRUE, direction = "<")
test <- roc.test(first, second, method = "delong", paired = TRUE)
cat(toJSON(list(
  made_by = list(R = R.version.string, survival = as.character(packageVersion("survival")),
                 pROC = as.character(packageVersion("pROC"))),
  logistic = coefs(logistic), logistic_loglik = as.numeric(logLik(logistic)),
  linear = coefs(linear), linear_loglik = as.numeric(logLik(linear)), linear_ci = unname(confint(linear)),
  cox = coefs(efron), cox_loglik = efron$loglik[2],
  cox_strata = coefs(strata_), cox_strata_loglik = strata_$loglik[2],
  zph = unname(zph$table), 
  km = list(time = km$time, surv = km$surv, err = km$std.err, group = as.integer(km$strata)),
  logrank = list(chisq = rank_$chisq, p = 1 - pchisq(rank_$chisq, 1)),
  auc = list(first = as.numeric(auc(first)), second = as.numeric(auc(second)),
             first_var = var(first, method = "delong"), second_var = var(second, method = "delong"),
             z = unname(test$statistic), p = test$p.value)
), digits = NA, auto_unbox = TRUE, pretty = FALSE), "\n")
