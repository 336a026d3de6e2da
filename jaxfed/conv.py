Cnn = None
