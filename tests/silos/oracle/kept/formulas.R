# Designs of R for tests/silos/oracle/test_formulas.py: Rscript formulas.R > formulas.json
library(splines)
d <- data.frame(
  age = c(20, 31.5, 47, 58, 66, 80), crp = c(0.5, 3, 7.25, 12, 40, 90), bmi = c(18, 22, 27, 31, 24, 35),
  sex = factor(c("f", "m", "m", "f", "f", "m")), stage = factor(c(1, 2, 3, 3, 1, 2)), site = factor(c("a", "b", "c", "a", "b", "c")))
show <- function(f) {
  m <- model.matrix(f, d)
  rows <- apply(m, 1, function(r) paste0("[", paste(sprintf("%.17g", r), collapse = ", "), "]"))
  paste0("[", paste(rows, collapse = ", "), "]")
}
fs <- list(
  "age + sex" = ~ age + sex, "age * sex + stage" = ~ age * sex + stage, "log(crp) + I(age^2) + sqrt(bmi) + age" = ~ log(crp) + I(age^2) + sqrt(bmi) + age,
  "age:bmi + age + bmi" = ~ age:bmi + age + bmi, "0 + age + bmi" = ~ 0 + age + bmi, "sex * stage" = ~ sex * stage, "age + site" = ~ age + site,
  "ns(crp, 3) + age" = ~ ns(crp, knots = c(5, 20), Boundary.knots = c(0.1, 100)) + age,
  "ns(bmi, 4)" = ~ ns(bmi, knots = 10 + 40 * 1:3 / 4, Boundary.knots = c(10, 50)),
  "sex * ns(crp, 3)" = ~ sex * ns(crp, knots = c(5, 20), Boundary.knots = c(0.1, 100)))
cat("{", paste(sprintf("\"%s\": %s", names(fs), sapply(fs, show)), collapse = ",\n"), "}\n", sep = "")
