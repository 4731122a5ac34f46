"""What is worth measuring: problems, their candidates, and the engines that are played whole."""
