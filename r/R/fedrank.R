# Studies of tables that stay at their silos, from R. The program fedrank computes; messages are files.

#' Path of the program fedrank: the option "fedrank.program", else the one on the PATH.
fedrank_program <- function() {
  program <- getOption("fedrank.program", Sys.which("fedrank"))
  if (!nzchar(program)) {
    stop("the program fedrank is not on the PATH: install it (pip install fedrank), or set ",
      'options(fedrank.program = "/path/to/fedrank").', call. = FALSE)
  }
  unname(program)
}

# Runs the program; returns what it printed, and stops with its own error.
run_program <- function(arguments) {
  errors <- tempfile()
  on.exit(unlink(errors))
  said <- suppressWarnings(system2(fedrank_program(), shQuote(arguments), stdout = TRUE, stderr = errors))
  status <- attr(said, "status")
  told <- readLines(errors, warn = FALSE)
  if (!is.null(status) && status != 0) {
    stop(paste(c(told, said), collapse = "\n"), call. = FALSE)
  }
  if (length(told)) message(paste(told, collapse = "\n"))
  as.character(said)
}

# Path of a file with the data: a path is one, a data frame is written to a file that only its owner reads.
as_file <- function(data, folder) {
  if (is.character(data)) return(normalizePath(data, mustWork = TRUE))
  if (!is.data.frame(data)) stop("data must be a data frame or the path of a file.", call. = FALSE)
  path <- file.path(folder, "data.csv")
  mask <- Sys.umask("077")
  on.exit(Sys.umask(mask))
  for (name in names(data)) {
    column <- data[[name]]
    if (is.factor(column) || inherits(column, "Date")) data[[name]] <- as.character(column)
    # Seventeen digits are read back to the last bit; write.table keeps fifteen.
    if (is.double(column)) data[[name]] <- ifelse(is.na(column), NA, sprintf("%.17g", column))
    if (is.logical(column)) data[[name]] <- ifelse(is.na(column), NA, ifelse(column, "true", "false"))
  }
  write.table(data, path, sep = ",", row.names = FALSE, na = "", qmethod = "double", fileEncoding = "UTF-8")
  path
}

with_file <- function(data, use) {
  folder <- tempfile("fedrank")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE))
  use(as_file(data, folder))
}

# A formula as text, on one line.
as_text <- function(formula) {
  if (is.character(formula)) formula else paste(trimws(deparse(formula, width.cutoff = 500L)), collapse = " ")
}

#' Answer a round of a study from a silo's own table.
#'
#' @param round Path of the round's file.
#' @param data A data frame, or the path of a CSV or parquet file.
#' @param silo The silo's name in the codebook.
#' @param agreed The codebook that the silo agreed to: its path or its SHA-256.
#' @param folder The silo's folder, which keeps the book of what left it.
#' @param out Path of the answer.
#' @return The path of the answer.
fedrank_answer <- function(round, data, silo, agreed, folder, out) {
  with_file(data, function(file) {
    run_program(c("silos", "answer", round, "--data", file, "--silo", silo, "--agreed", agreed,
      "--folder", folder, "--out", out, "--yes"))
    invisible(out)
  })
}

#' Take answers into a study's folder: write the next round, or the results.
#'
#' @param folder The study's folder.
#' @param answers Paths of answers.
#' @param codebook Path of the codebook, where the study begins.
#' @param without Silos that are not waited for any longer.
#' @return The path of the open round's file, or NULL at the end.
fedrank_combine <- function(folder, answers = character(), codebook = NULL, without = character()) {
  said <- run_program(c("silos", "combine", folder, answers, if (!is.null(codebook)) c("--codebook", codebook),
    if (length(without)) c("--without", without)))
  message(paste(said, collapse = "\n"))
  rounds <- sort(list.files(file.path(folder, "rounds"), full.names = TRUE))
  last <- rounds[length(rounds)]
  if (file.exists(file.path(last, "closed.json"))) NULL else file.path(last, "round.json")
}

#' The results of a study: a data frame for each question.
#'
#' @param folder The study's folder.
fedrank_results <- function(folder) {
  files <- list.files(file.path(folder, "results"), pattern = "[.]csv$", full.names = TRUE)
  if (!length(files)) stop("the study has no results yet: ", folder, call. = FALSE)
  setNames(lapply(files, read.csv, check.names = FALSE), sub("[.]csv$", "", basename(files)))
}

#' Simulate a study on a table that holds the rows of all silos.
#'
#' @param data A data frame, or the path of a CSV or parquet file.
#' @param formula What is asked, such as \code{ill ~ age + ns(crp, 3) + strata(site)}.
#' @param model The model.
#' @param site Name of the column with the silo.
#' @param ... Further flags of \command{fedrank silos analyse}, such as \code{errors = "robust"}.
#' @return A data frame of coefficients.
fedrank_analyse <- function(data, formula, model = "logistic", site = "site", ...) {
  more <- list(...)
  flags <- unlist(lapply(names(more), function(name) {
    flag <- paste0("--", gsub("[_.]", "-", name))
    if (isTRUE(more[[name]])) flag else if (isFALSE(more[[name]])) NULL else c(flag, as.character(more[[name]]))
  }))
  out <- tempfile("fedrank")
  on.exit(unlink(out, recursive = TRUE))
  with_file(data, function(file) {
    run_program(c("silos", "analyse", file, "--formula", as_text(formula), "--model", model, "--site", site,
      "--out", out, flags))
    read.csv(list.files(out, "[.]csv$", full.names = TRUE)[1], check.names = FALSE)
  })
}
