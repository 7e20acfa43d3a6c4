# Fits R's earth to the cases that make_reference.py has written into a folder, and writes what it found as JSON.
# usage: Rscript earth_reference.R FOLDER
suppressMessages({library(earth); library(jsonlite)})
folder <- commandArgs(trailingOnly = TRUE)[1]
manifest <- fromJSON(file.path(folder, "manifest.json"), simplifyVector = FALSE)
read <- function(name, rows, columns)
  matrix(readBin(file.path(folder, name), "double", rows * columns), rows, columns)

fits <- lapply(manifest, function(case) {
  x <- read(case$x, case$rows, case$features)
  y <- read(case$y, case$rows, case$outputs)
  colnames(x) <- paste0("x", seq_len(ncol(x)) - 1)
  arguments <- c(list(x = x, y = y, fast.k = 0), case$arguments)
  fit <- do.call(earth, arguments)
  list(
    name = case$name, digest = case$digest,
    dirs = unname(fit$dirs), cuts = unname(fit$cuts),
    selected = fit$selected.terms, coefficients = unname(fit$coefficients),
    gcv = fit$gcv, rss = fit$rss, grsq = fit$grsq, rsq = fit$rsq, stopped = fit$termcond)
})
writeLines(toJSON(fits, digits = NA, auto_unbox = TRUE), file.path(folder, "fits.json"))
cat(as.character(packageVersion("earth")))
