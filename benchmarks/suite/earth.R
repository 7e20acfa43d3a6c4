# Fits earth or predicts with it; prints the CPU seconds of that alone.
# usage: Rscript earth.R FOLDER fit|predict regression|classes ROWS FEATURES DEGREE
# FOLDER holds x and y (doubles, column by column; classes from 0); "model" or "values" is added.
suppressMessages(library(earth))
a <- commandArgs(trailingOnly = TRUE)
folder <- a[1]; n <- as.integer(a[4:6])
x <- matrix(readBin(file.path(folder, "x"), "double", n[1] * n[2]), n[1], n[2])
colnames(x) <- paste0("x", seq_len(n[2]))
cpu <- function(expression) sum(system.time(expression)[c("user.self", "sys.self")])
if (a[2] == "fit") {
  y <- readBin(file.path(folder, "y"), "double", n[1])
  time <- cpu(fit <- suppressWarnings(
    if (a[3] == "regression") earth(x, y, degree = n[3])
    else earth(x, factor(y), degree = n[3], glm = list(family = binomial))))
  saveRDS(fit, file.path(folder, "model"))
} else {
  fit <- readRDS(file.path(folder, "model"))
  time <- cpu(values <- predict(fit, x, type = "response"))
  writeBin(as.double(values), file.path(folder, "values"))
}
cat(time)
