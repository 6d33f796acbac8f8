#!/bin/bash
#SBATCH --nodes=1
