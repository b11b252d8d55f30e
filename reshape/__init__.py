"""Arguments of operators at other sizes."""
