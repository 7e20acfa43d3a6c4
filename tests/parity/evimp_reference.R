# Fits R's earth to the cases that make_evimp.py has written into a folder, and writes what evimp says of them as JSON.
# usage: Rscript evimp_reference.R FOLDER
suppressMessages({library(earth); library(jsonlite)})
folder <- commandArgs(trailingOnly = TRUE)[1]
manifest <- fromJSON(file.path(folder, "manifest.json"), simplifyVector = FALSE)
read <- function(name, rows, columns)
  matrix(readBin(file.path(folder, name), "double", rows * columns), rows, columns)

found <- lapply(manifest, function(case) {
  x <- read(case$x, case$rows, case$features)
  y <- read(case$y, case$rows, case$outputs)
  colnames(x) <- paste0("x", seq_len(ncol(x)) - 1)
  fit <- do.call(earth, c(list(x = x, y = y, fast.k = 0), case$arguments))
  importance <- unclass(evimp(fit, trim = FALSE))
  list(
    name = case$name, digest = case$digest, column = I(as.integer(importance[, "col"]) - 1L),
    subsets = I(unname(importance[, "nsubsets"])), gcv = I(unname(importance[, "gcv"])),
    rss = I(unname(importance[, "rss"])))
})
writeLines(toJSON(found, digits = 10, auto_unbox = TRUE), file.path(folder, "fits.json"))
cat(as.character(packageVersion("earth")))
