# Fits R's earth of a degree to each split of a folder, predicts the test rows, and prints a line of JSON.
# usage: Rscript earth_degree2.R FOLDER SPLITS DEGREE NK THRESH; NK and THRESH may be "default"
# A split k has k.shape (rows, features, test rows) and k.x, k.y, k.test as doubles, column by column.
suppressMessages({library(earth); library(jsonlite)})
a <- commandArgs(trailingOnly = TRUE)
degree <- as.integer(a[3])
thresh <- if (a[5] == "default") 0.001 else as.numeric(a[5])
results <- lapply(seq_len(as.integer(a[2])) - 1, function(k) {
  path <- function(what) file.path(a[1], paste0(k, ".", what))
  s <- scan(path("shape"), quiet = TRUE)
  x <- matrix(readBin(path("x"), "double", s[1] * s[2]), s[1], s[2])
  test <- matrix(readBin(path("test"), "double", s[3] * s[2]), s[3], s[2])
  colnames(x) <- colnames(test) <- paste0("x", seq_len(s[2]) - 1)
  y <- readBin(path("y"), "double", s[1])
  nk <- if (a[4] == "default") min(200, max(20, 2 * s[2])) + 1 else as.integer(a[4])
  start <- Sys.time()
  fit <- earth(x, y, degree = degree, nk = nk, thresh = thresh)
  seconds <- as.numeric(Sys.time() - start, units = "secs")
  list(seconds = seconds, terms = length(fit$selected.terms), forward = nrow(fit$dirs), gcv = fit$gcv,
       test = as.numeric(predict(fit, test)))
})
cat(toJSON(results, auto_unbox = TRUE, digits = NA))
