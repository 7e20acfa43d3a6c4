# Fits one R program to one split and writes the test rows' class probabilities; prints the seconds of the fit alone.
# usage: Rscript classify.R FOLDER PROGRAM ROWS TEST_ROWS FEATURES CLASSES
# FOLDER holds x, y, test (doubles, column by column; y from 1 to CLASSES); "probabilities" is added.
suppressMessages({library(polspline); library(earth); library(mda)})
a <- commandArgs(trailingOnly = TRUE)
folder <- a[1]; n <- as.integer(a[3:6])
doubles <- function(name, rows, columns) matrix(readBin(file.path(folder, name), "double", rows * columns), rows, columns)
x <- doubles("x", n[1], n[3]); test <- doubles("test", n[2], n[3]); y <- as.integer(doubles("y", n[1], 1))
colnames(x) <- colnames(test) <- paste0("x", seq_len(n[3]))
classes <- n[4]
seconds <- function(expression) { start <- Sys.time(); force(expression); as.numeric(Sys.time() - start, units = "secs") }
if (a[2] == "polyclass") {
  time <- seconds(fit <- polyclass(y, x))
  p <- ppolyclass(cov = test, fit = fit)
} else if (a[2] == "earth") {
  label <- factor(y)
  time <- seconds(suppressWarnings(fit <- earth(x, label, glm = list(family = binomial))))
  p <- predict(fit, test, type = "response")
  p <- cbind(1 - p[, 1], p[, 1])
} else {
  frame <- data.frame(x, label = factor(y))
  time <- seconds(fit <- fda(label ~ ., data = frame, method = earth))
  p <- predict(fit, data.frame(test), type = "posterior")
}
writeBin(as.double(matrix(p, n[2], classes)), file.path(folder, "probabilities"))
cat(time)
