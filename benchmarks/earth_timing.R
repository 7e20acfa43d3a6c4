# Times R's earth on one table and prints a line of JSON. 
# usage: Rscript earth_timing.R X Y ROWS FEATURES NK THRESH FITS
suppressMessages({library(earth); library(jsonlite)})
a <- commandArgs(trailingOnly = TRUE)
rows <- as.integer(a[3]); features <- as.integer(a[4])
x <- matrix(readBin(a[1], "double", rows * features), rows, features)
y <- readBin(a[2], "double", rows)
colnames(x) <- paste0("x", seq_len(features) - 1)
# Called plainly: do.call would make earth print the whole table into the fit's call, which takes longer than the fit.
thresh <- as.numeric(a[6])
nk <- if (a[5] == "default") min(200, max(20, 2 * features)) + 1 else as.integer(a[5])
seconds <- replicate(as.integer(a[7]), {
  start <- Sys.time()
  fit <<- earth(x, y, fast.k = 0, nk = nk, thresh = thresh)
  as.numeric(Sys.time() - start, units = "secs")
})
forward <- earth(x, y, fast.k = 0, nk = nk, thresh = thresh, pmethod = "none")
# A step adds a pair, one hinge or one linear term: the hinges of a pair share predictor and cut.
d <- forward$dirs[-1, , drop = FALSE]; k <- forward$cuts[-1, , drop = FALSE]
keys <- vapply(seq_len(nrow(d)), function(i) { j <- which(d[i, ] != 0); paste(j, k[i, j], d[i, j] == 2) }, "")
cat(toJSON(list(seconds = seconds, terms = nrow(forward$dirs), steps = length(unique(keys)), rss = forward$rss,
                selected = length(fit$selected.terms)), auto_unbox = TRUE, digits = NA))
