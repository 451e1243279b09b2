"""Parts of methods that rank, one a file: an example of a package of your own."""
