"""What several families need: pieces of C++, epilogue stages, kinds of problems, strides."""
