"""One query after another: it is compiled and answered, and its reply is written."""
